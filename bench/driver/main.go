// SPDX-License-Identifier: Apache-2.0

// Driver measures the cost of an OTLP pipeline server. It starts the server named after the flags,
// keeps it busy with export requests made beforehand, and receives the forwarded data. It prints
// one line of JSON: items per CPU second of the server, latency, memory, and whether everything
// arrived.
//
// It is written in Go because pdata, the Collector's data model, makes the requests. Both servers
// are thus measured with the Collector's format.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"
)

// settle is the pause after the start of a server before its idle memory is read.
const settle = time.Second

type options struct {
	signal           signalKind
	target           string
	http             bool
	sinkGRPC         string
	sinkHTTP         string
	sinkCompression  string
	shape            shape
	conns, inflight  int
	outstanding      int
	warmup           time.Duration
	duration         time.Duration
	count            int
	drain            time.Duration
	server           []string
	showServerOutput bool
	folder           string
}

func parse() options {
	var o options
	kind := flag.String("kind", "traces", "traces or profiles")
	proto := flag.String("proto", "grpc", "grpc or http, towards the server")
	flag.StringVar(&o.target, "target", "127.0.0.1:14317", "where the server receives")
	flag.StringVar(&o.sinkGRPC, "sink", "127.0.0.1:15317", "where the server sends to by gRPC")
	flag.StringVar(&o.sinkHTTP, "sink-http", "127.0.0.1:15318", "where the server sends to by HTTP")
	flag.StringVar(&o.sinkCompression, "compression-sink", "",
		"refuse forwarded requests whose compression is not this: none, gzip, zstd ... (default: take all)")
	flag.IntVar(&o.shape.requests, "requests", 64, "different requests in the corpus")
	flag.IntVar(&o.shape.items, "items", 200, "spans or samples in a request")
	flag.BoolVar(&o.shape.linked, "linked", false, "samples name the spans of the traces corpus")
	flag.BoolVar(&o.shape.shuffled, "shuffled", false, "every dictionary is in an order of its own")
	flag.IntVar(&o.shape.services, "services", 0, "different service names (0: eight)")
	flag.Uint64Var(&o.shape.seed, "seed", 1, "every identifier and choice follows from it")
	flag.IntVar(&o.conns, "conns", 4, "connections")
	flag.IntVar(&o.inflight, "inflight", 4, "outstanding requests on each connection")
	flag.IntVar(&o.outstanding, "outstanding", 0, "outstanding requests on all connections together, which take turns (0: all may have theirs)")
	flag.DurationVar(&o.warmup, "warmup", 0, "send for so long before anything is measured but memory")
	flag.DurationVar(&o.duration, "duration", 6*time.Second, "length of the run; 0: only start and look")
	flag.IntVar(&o.count, "count", 0, "stop after so many requests (0: by time alone)")
	flag.DurationVar(&o.drain, "drain", 10*time.Second, "how long to wait for the last item")
	flag.StringVar(&o.folder, "write", "", "only write the corpus into this folder, a file for each request")
	flag.BoolVar(&o.showServerOutput, "v", false, "let the server's standard error through")
	flag.Parse()

	switch *kind {
	case "traces":
		o.signal = traces
	case "profiles":
		o.signal = profiles
	default:
		log.Fatalf("-kind: want traces or profiles, got %q", *kind)
	}
	switch *proto {
	case "grpc":
	case "http":
		o.http = true
		if o.target == flag.Lookup("target").DefValue {
			o.target = "127.0.0.1:14318"
		}
	default:
		log.Fatalf("-proto: want grpc or http, got %q", *proto)
	}
	if o.shape.requests < 1 || o.shape.items < 1 || o.conns < 1 || o.inflight < 1 || o.shape.services < 0 || o.outstanding < 0 {
		log.Fatal("-requests, -items, -conns and -inflight must be at least 1, -services and -outstanding at least 0")
	}
	o.server = flag.Args()
	return o
}

// report is the printed line. Latencies are those of acknowledged requests, measured by the sender.
type report struct {
	Kind            string  `json:"kind"`
	ItemsPerRequest int     `json:"items_per_request"`
	BytesPerItem    int     `json:"bytes_per_item"`
	Acked           int64   `json:"acked"`
	Arrived         int64   `json:"arrived"`
	Refused         int64   `json:"refused_requests"`
	ItemsPerSecond  float64 `json:"items_per_s"`
	P50             float64 `json:"p50_ms"`
	P99             float64 `json:"p99_ms"`
	SinkRequests    int64   `json:"sink_requests"`
	SinkBytes       int64   `json:"sink_bytes"`
	CPU             float64 `json:"cpu_s"`
	ItemsPerCPU     float64 `json:"items_per_cpu_s"`
	Start           float64 `json:"start_ms"`
	RSSIdle         float64 `json:"rss_idle_mib"`
	RSSPeak         float64 `json:"rss_peak_mib"`
}

// measure returns early, with an error and without child processes, when ctx is cancelled.
func measure(ctx context.Context, o options) (report, error) {
	var r report
	snk, err := newSink(o.signal, o.sinkGRPC, o.sinkHTTP, o.sinkCompression)
	if err != nil {
		return r, err
	}
	defer snk.stop()
	corpus, err := o.signal.corpus(o.shape)
	if err != nil {
		return r, err
	}

	var srv *server
	if len(o.server) > 0 {
		if srv, err = startServer(o.server, o.showServerOutput); err != nil {
			return r, err
		}
		defer srv.stop()
		if r.Start, err = srv.waitPort(o.target); err != nil {
			return r, err
		}
		time.Sleep(settle)
		r.RSSIdle = srv.memoryMiB("VmRSS")
	}
	l := newLoad(o, corpus)
	var before arrived
	if o.warmup > 0 {
		warm, err := l.run(ctx, o.warmup)
		if err != nil {
			return r, err
		}
		snk.await(ctx, warm.acked, o.drain, srv)
		before = snk.arrived()
	}
	cpu := srv.cpuSeconds()
	seen, err := l.run(ctx, o.duration)
	if err != nil {
		return r, err
	}
	snk.await(ctx, before.items+seen.acked, o.drain, srv)
	if ctx.Err() != nil {
		return r, errors.New("interrupted")
	}
	r.CPU = srv.cpuSeconds() - cpu
	r.RSSPeak = srv.memoryMiB("VmHWM")
	if !srv.alive() {
		return r, fmt.Errorf("the server ended during the run: %v", srv.state())
	}
	r.Kind, r.ItemsPerRequest = o.signal.name, o.shape.items
	r.BytesPerItem = totalBytes(corpus) / o.shape.requests / o.shape.items
	r.Acked, r.Refused, r.P50, r.P99 = seen.acked, seen.refused, seen.percentile(50), seen.percentile(99)
	all := snk.arrived()
	r.Arrived, r.SinkRequests, r.SinkBytes = all.items-before.items, all.requests-before.requests, all.bytes-before.bytes
	if seen.seconds > 0 {
		r.ItemsPerSecond = float64(seen.acked) / seen.seconds
	}
	if r.CPU > 0 {
		r.ItemsPerCPU = float64(r.Arrived) / r.CPU
	}
	return r, nil
}

// writeCorpus writes each request to a separate file, for the benchmarks of single parts.
func writeCorpus(o options) error {
	corpus, err := o.signal.corpus(o.shape)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.folder, 0o755); err != nil {
		return err
	}
	for i, body := range corpus {
		if err := os.WriteFile(filepath.Join(o.folder, fmt.Sprintf("%05d", i)), body, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("driver: ")
	// The corpus is large and never becomes garbage: frequent collections would only use the
	// server's cores.
	debug.SetGCPercent(400)
	o := parse()
	if o.folder != "" {
		if err := writeCorpus(o); err != nil {
			log.Fatal(err)
		}
		return
	}
	ctx, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	r, err := measure(ctx, o)
	if err != nil {
		log.Fatal(err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}
