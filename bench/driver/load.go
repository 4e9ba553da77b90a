// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// refusalPause keeps a driver whose requests are rejected from spinning.
const refusalPause = 20 * time.Millisecond

// sendFunc sends one export request and returns nil when the server acknowledged it.
type sendFunc func(ctx context.Context, body []byte) error

// load keeps conns x inflight requests outstanding, distributed over the connections in turn. It
// repeats the corpus until the time or the count is reached.
type load struct {
	o      options
	corpus [][]byte
	next   atomic.Int64
	warned atomic.Bool
	places chan struct{} // limits the outstanding requests; waiting senders are served in order
}

// tally holds the counts of one sender, or the sum of all.
type tally struct {
	acked, refused int64
	latencies      []float64 // in milliseconds
	seconds        float64
}

func newLoad(o options, corpus [][]byte) *load {
	places := o.conns * o.inflight
	if o.outstanding > 0 {
		places = min(places, o.outstanding)
	}
	return &load{o: o, corpus: corpus, places: make(chan struct{}, places)}
}

// run stops sending when the duration is over or ctx is cancelled. It then waits for outstanding
// requests, so that the acknowledged ones are known, but not longer than -drain: a server may hang.
// That limit is a cancellation instead of a deadline, because gRPC would announce a deadline in
// every request.
func (l *load) run(ctx context.Context, duration time.Duration) (tally, error) {
	sending, stop := context.WithTimeout(ctx, duration)
	defer stop()
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	limit := time.AfterFunc(duration+l.o.drain, giveUp)
	defer limit.Stop()
	var all tally
	var lock sync.Mutex
	var wait sync.WaitGroup
	start := time.Now()
	for range l.o.conns {
		send, closeConn, err := l.dial()
		if err != nil {
			return all, err
		}
		defer closeConn()
		for range l.o.inflight {
			wait.Add(1)
			go func() {
				defer wait.Done()
				one := l.sendAll(sending, waiting, send)
				lock.Lock()
				all.acked += one.acked
				all.refused += one.refused
				all.latencies = append(all.latencies, one.latencies...)
				lock.Unlock()
			}()
		}
	}
	wait.Wait()
	all.seconds = time.Since(start).Seconds()
	sort.Float64s(all.latencies)
	return all, nil
}

func (l *load) sendAll(sending, waiting context.Context, send sendFunc) tally {
	var t tally
	for sending.Err() == nil {
		i := l.next.Add(1) - 1
		if l.o.count > 0 && i >= int64(l.o.count) {
			break
		}
		l.places <- struct{}{}
		if sending.Err() != nil { // meanwhile
			<-l.places
			break
		}
		start := time.Now()
		err := send(waiting, l.corpus[i%int64(len(l.corpus))])
		<-l.places
		if err != nil {
			if l.warned.CompareAndSwap(false, true) {
				log.Printf("first refusal: %v", err)
			}
			t.refused++
			time.Sleep(refusalPause)
			continue
		}
		t.latencies = append(t.latencies, time.Since(start).Seconds()*1e3)
		t.acked += int64(l.o.shape.items)
	}
	return t
}

// dial opens one connection.
func (l *load) dial() (sendFunc, func(), error) {
	if l.o.http {
		return l.dialHTTP()
	}
	conn, err := grpc.NewClient(l.o.target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		return nil, nil, err
	}
	send := func(ctx context.Context, body []byte) error {
		var ignored struct{}
		return conn.Invoke(ctx, l.o.signal.method, &body, &ignored)
	}
	return send, func() { conn.Close() }, nil
}

// dialHTTP opens as many connections as requests are in flight: HTTP/1.1 has one request at a time
// on a connection.
func (l *load) dialHTTP() (sendFunc, func(), error) {
	transport := &http.Transport{MaxConnsPerHost: l.o.inflight, MaxIdleConnsPerHost: l.o.inflight}
	client := &http.Client{Transport: transport}
	url := "http://" + l.o.target + l.o.signal.path
	send := func(ctx context.Context, body []byte) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/x-protobuf")
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		io.Copy(io.Discard, answer.Body)
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", answer.Status)
		}
		return nil
	}
	return send, transport.CloseIdleConnections, nil
}

// percentile uses the nearest rank; latencies are sorted.
func (t tally) percentile(p int) float64 {
	if len(t.latencies) == 0 {
		return 0
	}
	return t.latencies[(len(t.latencies)-1)*p/100]
}
