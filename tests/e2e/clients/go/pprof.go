// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"sync"
	"time"
)

var sink []byte

//go:noinline
func burnCPU() (sum int) {
	for i := 0; i < 1_000_000; i++ {
		sum += i * i
	}
	return sum
}

//go:noinline
func allocate() {
	sink = make([]byte, 64<<10)
}

//go:noinline
func contend(lock *sync.Mutex) {
	lock.Lock()
	time.Sleep(time.Millisecond)
	lock.Unlock()
}

// servePprof is a program with net/http/pprof. It prints where it listens, and works until its
// standard input ends.
func servePprof() error {
	runtime.MemProfileRate = 1
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	var lock sync.Mutex
	go func() {
		for {
			burnCPU()
			allocate()
			time.Sleep(time.Millisecond)
		}
	}()
	for i := 0; i < 2; i++ {
		go func() {
			for {
				contend(&lock)
			}
		}()
	}
	go func() { _ = http.Serve(listener, nil) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
