// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

func newShop() *http.ServeMux {
	shop := http.NewServeMux()
	shop.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(3 * time.Millisecond) // waits for a database, as it were
		fmt.Fprintln(w, "apples, pears")
	})
	shop.HandleFunc("GET /checkout", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "total %.2f\n", priceCart(400))
	})
	shop.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	return shop
}

// priceCart is slow on purpose: it is what the profile should point at.
//
//go:noinline
func priceCart(items int) float64 {
	total := 0.0
	for item := range items {
		for discount := range 100_000 {
			total += math.Sqrt(float64(item*discount)) / 1e6
		}
	}
	return total
}

// driver asks the shop for its pages, one after the other.
type driver struct {
	url    string
	served atomic.Int64
}

func (d *driver) run(ctx context.Context) error {
	pages := []string{"/", "/health", "/", "/checkout"}
	for n := 0; ; n++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+pages[n%len(pages)], nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		d.served.Add(1)
	}
}
