// SPDX-License-Identifier: Apache-2.0

// Measures Pyroscope's reader of recordings, with the options for a recording from a Pyroscope
// client:
//
// jfr FILE [SECONDS]
//
// Prints events (those that are samples) per CPU second, one row a line: name, a tab, the figure.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/grafana/jfr-parser/parser"
	"github.com/grafana/jfr-parser/pprof"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "jfr:", err)
		os.Exit(1)
	}
}

// cpuSeconds returns the CPU time of the whole process, including the garbage collector's threads.
func cpuSeconds() float64 {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// countEvents counts the events that become samples.
func countEvents(data []byte) int {
	p, n := parser.NewParser(data, parser.Options{}), 0
	for {
		kind, err := p.ParseEvent()
		if err == io.EOF {
			return n
		}
		check(err)
		switch t := p.TypeMap; kind {
		case t.T_EXECUTION_SAMPLE, t.T_WALL_CLOCK_SAMPLE, t.T_ALLOC_IN_NEW_TLAB, t.T_ALLOC_OUTSIDE_TLAB,
			t.T_ALLOC_SAMPLE, t.T_MONITOR_ENTER, t.T_THREAD_PARK, t.T_LIVE_OBJECT, t.T_MALLOC:
			n++
		}
	}
}

func main() {
	if len(os.Args) < 2 {
		check(fmt.Errorf("usage: jfr FILE [SECONDS]"))
	}
	seconds := 3.0
	if len(os.Args) > 2 {
		var err error
		seconds, err = strconv.ParseFloat(os.Args[2], 64)
		check(err)
	}
	data, err := os.ReadFile(os.Args[1])
	check(err)
	input := &pprof.ParseInput{StartTime: time.Unix(1, 0), EndTime: time.Unix(11, 0), SampleRate: 100}
	convert := func() {
		_, err := pprof.ParseJFR(data, input, new(pprof.LabelsSnapshot))
		check(err)
	}
	convert()
	n, rounds := countEvents(data), 0
	start := cpuSeconds()
	for cpuSeconds()-start < seconds {
		convert()
		rounds++
	}
	fmt.Printf("jfr\t%.0f\n", float64(rounds*n)/(cpuSeconds()-start))
}
