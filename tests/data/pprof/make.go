// SPDX-License-Identifier: Apache-2.0

// Makes the profiles beside it with Go's own runtime, and what Go's own reader says of them:
//
//	cd tests/data/pprof && go run -trimpath make.go
//
// Every run measures anew, so that the numbers in the tests change with the files.
package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

var kept [][]byte

//go:noinline
func burn(d time.Duration) (n uint64) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for i := uint64(0); i < 1000; i++ {
			n = n*6364136223846793005 + square(i)
		}
	}
	return n
}

func square(n uint64) uint64 { return n * n } // inlined: a location with two lines

func work() {
	pprof.Do(context.Background(), pprof.Labels("span_id", "00f067aa0ba902b7", "trace_id",
		"4bf92f3577b34da6a3ce929d0e0e4736", "span_name", "POST /checkout"), func(context.Context) {
		burn(300 * time.Millisecond)
	})
	pprof.Do(context.Background(), pprof.Labels("span_id", "00F067AA0BA902B8"), func(context.Context) {
		burn(200 * time.Millisecond)
	})
	pprof.Do(context.Background(), pprof.Labels("user", "zoë"), func(context.Context) {
		burn(200 * time.Millisecond)
	})
	burn(200 * time.Millisecond)
}

func allocate() {
	for i := 0; i < 200; i++ {
		kept = append(kept, make([]byte, 64<<10))
		_ = append([]byte(nil), make([]byte, 4<<10)...)
	}
}

func contend() {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := 0; i < 8; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := 0; k < 20; k++ {
				mu.Lock()
				time.Sleep(time.Millisecond)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func write(name string, fill func(f *os.File)) {
	path := name + ".pb.gz"
	f, err := os.Create(path)
	check(err)
	fill(f)
	check(f.Close())
	raw, err := exec.Command("go", "tool", "pprof", "-raw", path).Output()
	check(err)
	check(os.WriteFile(name+".txt", raw, 0o644))
}

func main() {
	runtime.MemProfileRate = 16 << 10
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	write("cpu", func(f *os.File) {
		check(pprof.StartCPUProfile(f))
		work()
		pprof.StopCPUProfile()
	})
	write("empty", func(f *os.File) {
		check(pprof.StartCPUProfile(f))
		pprof.StopCPUProfile()
	})
	allocate()
	contend()
	runtime.GC()
	stop := make(chan bool)
	pprof.Do(context.Background(), pprof.Labels("span_id", "1", "pool", "idle"), func(context.Context) {
		go func() { <-stop }()
	})
	time.Sleep(10 * time.Millisecond)
	for _, name := range []string{"heap", "allocs", "mutex", "block", "goroutine", "threadcreate"} {
		write(name, func(f *os.File) { check(pprof.Lookup(name).WriteTo(f, 0)) })
	}
	close(stop)
	runtime.KeepAlive(kept)
}
