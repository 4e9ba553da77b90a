// SPDX-License-Identifier: Apache-2.0

// A program under Datadog's profiler, with a span around its work; prints [trace, span, name] as ../go does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"github.com/DataDog/dd-trace-go/v2/profiler"
)

//go:noinline
func rootWork(end time.Time) (sum int) {
	for time.Now().Before(end) {
		for i := range 10000 {
			sum += i * i
		}
	}
	return sum
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	seconds, err := strconv.ParseFloat(os.Getenv("SECONDS"), 64)
	must(err)
	must(tracer.Start())
	must(profiler.Start(profiler.WithProfileTypes(profiler.CPUProfile, profiler.HeapProfile)))
	span, _ := tracer.StartSpanFromContext(context.Background(), "POST /checkout")
	ids := []string{span.Context().TraceID(), fmt.Sprintf("%016x", span.Context().SpanID()), "POST /checkout"}
	must(json.NewEncoder(os.Stdout).Encode(ids))
	rootWork(time.Now().Add(time.Duration(seconds * float64(time.Second))))
	span.Finish()
	profiler.Stop() // sends the last profile: DD_PROFILING_FLUSH_ON_EXIT
	tracer.Stop()
}
