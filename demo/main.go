// SPDX-License-Identifier: Apache-2.0

// Demo is a small shop that sends its spans and its CPU profile to an OTLP server, both by official
// code, and drives itself for a while. `demo report` then says what came out at the other end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "report" {
		flags := flag.NewFlagSet("report", flag.ExitOnError)
		dir := flags.String("dir", "braid-out", "folder of traces.json and profiles.json")
		n := flags.Int("n", 5, "spans to show")
		_ = flags.Parse(os.Args[2:])
		exitOn(report(os.Stdout, *dir, *n))
		return
	}
	endpoint := flag.String("otlp", "127.0.0.1:4317", "OTLP gRPC server")
	duration := flag.Duration("duration", 6*time.Second, "how long to run")
	flag.Parse()
	exitOn(run(*endpoint, *duration))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run serves, drives and profiles itself until the time is up, and sends everything on its way out.
func run(endpoint string, duration time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	defer cancel()
	tracing, err := newTracing(ctx, endpoint)
	if err != nil {
		return err
	}
	profiling, err := newProfiling(endpoint)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: traced(tracing.Tracer("shop"), newShop())}
	go func() { _ = server.Serve(listener) }()

	load := driver{url: "http://" + listener.Addr().String()}
	var group errgroup.Group
	group.Go(func() error { return profiling.run(ctx) })
	group.Go(func() error { return load.run(ctx) })
	failed := group.Wait()

	end, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	failed = errors.Join(failed, server.Shutdown(end), tracing.Shutdown(end), profiling.close())
	fmt.Printf("%d requests served, %d profile samples taken, sent to %s\n",
		load.served.Load(), profiling.samples, endpoint)
	return failed
}
