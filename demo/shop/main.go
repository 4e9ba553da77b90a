// SPDX-License-Identifier: Apache-2.0

// Shop is the front end of the demo. It serves pages, requests the price of each cart from the pricing service, and
// generates its own load. The official SDKs of OpenTelemetry and Pyroscope send its spans and its CPU profile.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	otlp := flag.String("otlp", "http://127.0.0.1:4318", "OTLP/HTTP server for spans")
	pyroscope := flag.String("pyroscope", "http://127.0.0.1:4040", "Pyroscope server for profiles")
	pricing := flag.String("pricing", "", "URL of the pricing service")
	duration := flag.Duration("duration", time.Minute, "how long to run")
	flag.Parse()
	if err := run(*otlp, *pyroscope, *pricing, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run serves the shop and generates load for the given time, and sends all remaining data before it returns.
func run(otlp, pyroscope, pricing string, duration time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	telemetry, err := startTelemetry(ctx, otlp, pyroscope)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	tracer := telemetry.tracer()
	server := &http.Server{Handler: traced(tracer, newShop(tracer, pricing))}
	go func() { _ = server.Serve(listener) }()
	load := driver{url: "http://" + listener.Addr().String()}
	failed := load.run(ctx)

	end, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	failed = errors.Join(failed, server.Shutdown(end), telemetry.stop(end))
	fmt.Printf("%d requests served\n", load.served.Load())
	return failed
}
