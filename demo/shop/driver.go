// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Requests of the customers, in order: most carts are small, and some are large.
var visits = []struct{ method, path string }{
	{http.MethodGet, "/"},
	{http.MethodGet, "/search?q=ripe+plum"},
	{http.MethodPost, "/checkout?items=6"},
	{http.MethodGet, "/"},
	{http.MethodGet, "/search?q=pear"},
	{http.MethodPost, "/checkout?items=8"},
	{http.MethodGet, "/"},
	{http.MethodPost, "/checkout?items=150"},
}

// pageTimeout is how long a customer waits for a page.
const pageTimeout = 30 * time.Second

// driver requests pages of the shop, one after the other.
type driver struct {
	url    string
	served atomic.Int64
}

// run visits pages until the context ends. It waits for the last page, so that no span ends before its children.
func (d *driver) run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		err := d.visit(visits[n%len(visits)].method, visits[n%len(visits)].path)
		if err != nil {
			return err
		}
		d.served.Add(1)
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (d *driver) visit(method, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), pageTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, d.url+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
