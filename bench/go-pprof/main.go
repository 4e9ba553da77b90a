// SPDX-License-Identifier: Apache-2.0

// Makes a pprof for the benchmark, and measures Go's reader and writer with one:
//
// pprof make FILE [SAMPLES] pprof bench FILE [SECONDS]
//
// Prints samples per CPU second, one row a line: name, a tab, the figure.
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/google/pprof/profile"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "pprof:", err)
		os.Exit(1)
	}
}

// cpuSeconds returns the CPU time of the whole process, including the garbage collector's threads.
func cpuSeconds() float64 {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// shape makes a CPU profile such as Go's runtime writes: two sample types, stacks of 6 to 42
// frames of 2,000 functions, every second sample labelled with one of 200 spans.
func shape(samples int) *profile.Profile {
	r := rand.New(rand.NewSource(1))
	cpu := &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	m := &profile.Mapping{ID: 1, Start: 0x400000, Limit: 0x900000, File: "/usr/bin/shop",
		BuildID: "0123456789abcdef0123456789abcdef01234567", HasFunctions: true}
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, cpu},
		PeriodType: cpu, Period: 10000000, TimeNanos: 1700000000000000000, DurationNanos: 10e9,
		Mapping: []*profile.Mapping{m}}
	for i := 0; i < 2000; i++ {
		name := fmt.Sprintf("github.com/example/shop/internal/%s.(*Server).handle%d",
			[]string{"cart", "checkout", "payment", "catalog"}[i%4], i)
		f := &profile.Function{ID: uint64(i + 1), Name: name, SystemName: name,
			Filename: fmt.Sprintf("/src/shop/internal/file%d.go", i/10), StartLine: int64(i)}
		p.Function = append(p.Function, f)
		for k := 0; k < 2; k++ {
			p.Location = append(p.Location, &profile.Location{ID: uint64(len(p.Location) + 1), Mapping: m,
				Address: uint64(0x400000 + 64*len(p.Location)),
				Line:    []profile.Line{{Function: f, Line: int64(10*i + k)}}})
		}
	}
	for i := 0; i < samples; i++ {
		s := &profile.Sample{Value: []int64{1 + r.Int63n(3), 0}}
		s.Value[1] = s.Value[0] * p.Period
		for n := 6 + r.Intn(37); n > 0; n-- {
			s.Location = append(s.Location, p.Location[r.Intn(len(p.Location))])
		}
		if i%2 == 0 {
			span := r.Intn(200)
			s.Label = map[string][]string{"span_id": {fmt.Sprintf("%016x", span+1)},
				"trace_id": {fmt.Sprintf("%032x", span/4+1)}, "span_name": {"POST /checkout"}}
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

func makeFile(path string, samples int) {
	f, err := os.Create(path)
	check(err)
	check(shape(samples).WriteUncompressed(f))
	check(f.Close())
}

// lookEach is the largest number of conversions between two clock reads.
const lookEach = 64

// measure calls work until the time is up and prints samples per CPU second.
func measure(name string, seconds float64, samples int, work func()) {
	work()
	// As in bench/pprof.c: reading the clock is a system call.
	start, rounds, some := cpuSeconds(), 0, 1
	for end := start; end-start < seconds; {
		for i := 0; i < some; i++ {
			work()
		}
		rounds += some
		now := cpuSeconds()
		if some < lookEach && now-end < seconds/100 {
			some *= 2
		}
		end = now
	}
	fmt.Printf("%s\t%.0f\n", name, float64(rounds*samples)/(cpuSeconds()-start))
}

func bench(path string, seconds float64) {
	data, err := os.ReadFile(path)
	check(err)
	p, err := profile.ParseData(data)
	check(err)
	measure("parse", seconds, len(p.Sample), func() {
		// ParseUncompressed alone leaves the fields undecoded.
		_, err := profile.Parse(bytes.NewReader(data))
		check(err)
	})
	measure("write", seconds, len(p.Sample), func() { check(p.WriteUncompressed(io.Discard)) })
}

func main() {
	if len(os.Args) < 3 {
		check(fmt.Errorf("usage: pprof make FILE [SAMPLES] | pprof bench FILE [SECONDS]"))
	}
	number := 0.0
	if len(os.Args) > 3 {
		var err error
		number, err = strconv.ParseFloat(os.Args[3], 64)
		check(err)
	}
	switch {
	case os.Args[1] == "make" && number == 0:
		makeFile(os.Args[2], 20000)
	case os.Args[1] == "make":
		makeFile(os.Args[2], int(number))
	case number == 0:
		bench(os.Args[2], 3)
	default:
		bench(os.Args[2], number)
	}
}
