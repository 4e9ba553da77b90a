// SPDX-License-Identifier: Apache-2.0

// Clients sends data with the official Go libraries: spans by the SDK's gRPC exporter, profiles by
// the Collector's data model. It prints the sent ids, so that a test can check whether all arrived.
// It also runs Prometheus' linter on a scrape, and queries a profile server with Pyroscope's
// client.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: clients traces|profiles|pprof|promlint|pyroscope [flags]"))
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	endpoint := flags.String("endpoint", "127.0.0.1:4317", "host:port of the server")
	transport := flags.String("transport", "grpc", "profiles: grpc, proto or json; pyroscope: proto or json")
	service := flags.String("service", "shop-linked", "profiles: the service whose samples have links")
	linked := flags.Bool("linked", false, "profiles: link to the spans that another client printed, read from stdin")
	compression := flags.String("compression", "none", "none or gzip")
	authorization := flags.String("authorization", "", "pprof: the header that requests must have")
	certificate := flags.String("certificate", "", "pprof: PEM file with a key and its certificate: TLS")
	_ = flags.Parse(os.Args[2:])

	if os.Args[1] == "pprof" { // runs until it is stopped
		fail(servePprof(*authorization, *certificate))
		return
	}
	if os.Args[1] == "promlint" { // reads requests from stdin
		fail(lintMetrics(os.Stdin))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch os.Args[1] {
	case "traces":
		fail(sendTraces(ctx, *endpoint, *compression == "gzip"))
	case "profiles":
		spans := ownSpans()
		if *linked {
			var err error
			spans, err = readSpans(os.Stdin)
			fail(err)
		}
		fail(sendProfiles(ctx, *endpoint, *transport, *service, spans, *compression == "gzip"))
	case "pyroscope":
		fail(askPyroscope(ctx, *endpoint, *transport == "json", *compression == "gzip", os.Stdin, os.Stdout))
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
