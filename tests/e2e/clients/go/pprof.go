// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"sync"
	"time"

	_ "github.com/grafana/pyroscope-go/godeltaprof/http/pprof"
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

func work() {
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
}

// allowed is a handler that requires the header "Authorization", unless the value is empty.
func allowed(authorization string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if authorization != "" && r.Header.Get("Authorization") != authorization {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listen opens a free port, with TLS if there is a PEM file with a key and its certificate.
func listen(certificate string) (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || certificate == "" {
		return listener, err
	}
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}}), nil
}

// servePprof is a program with net/http/pprof and godeltaprof. It prints its address, and runs
// until its standard input ends.
func servePprof(authorization, certificate string) error {
	runtime.MemProfileRate = 512 // records all allocations of allocate, and some others
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	listener, err := listen(certificate)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	work()
	go func() { _ = http.Serve(listener, allowed(authorization, http.DefaultServeMux)) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
