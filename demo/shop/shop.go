// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

const catalogueSize = 3000

type shop struct {
	tracer    trace.Tracer
	pricing   string // URL
	catalogue []string
}

func newShop(tracer trace.Tracer, pricing string) *http.ServeMux {
	s := &shop{tracer: tracer, pricing: pricing}
	for number := range catalogueSize {
		s.catalogue = append(s.catalogue, fmt.Sprintf("%s %s no. %d",
			[]string{"red", "green", "small", "ripe"}[number%4], []string{"apple", "pear", "plum"}[number%3], number))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.front)
	mux.HandleFunc("GET /search", s.search)
	mux.HandleFunc("POST /checkout", s.checkout)
	return mux
}

func (s *shop) front(w http.ResponseWriter, r *http.Request) {
	s.wait(r.Context(), "SELECT featured", 3*time.Millisecond)
	fmt.Fprintln(w, "apples, pears, plums")
}

func (s *shop) search(w http.ResponseWriter, r *http.Request) {
	for _, name := range rank(s.catalogue, r.URL.Query().Get("q"))[:10] {
		fmt.Fprintln(w, name)
	}
}

// rank sorts the catalogue by how many characters of the search text each name contains.
func rank(catalogue []string, question string) []string {
	names := append([]string(nil), catalogue...)
	score := map[string]int{}
	for _, name := range names {
		for _, word := range strings.Fields(question) {
			score[name] += strings.Count(name, word)
		}
	}
	sort.SliceStable(names, func(a, b int) bool { return score[names[a]] > score[names[b]] })
	return names
}

func (s *shop) checkout(w http.ResponseWriter, r *http.Request) {
	items, _ := strconv.Atoi(r.URL.Query().Get("items"))
	trace.SpanFromContext(r.Context()).SetAttributes(attribute.Int("cart.items", items))
	s.wait(r.Context(), "SELECT cart", 4*time.Millisecond)
	total, err := s.price(r.Context(), items)
	if err != nil {
		trace.SpanFromContext(r.Context()).SetStatus(codes.Error, err.Error())
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	s.wait(r.Context(), "charge card", 25*time.Millisecond)
	fmt.Fprintf(w, "%.2f %x\n", total, signReceipt(total))
}

// price requests the price of a cart from the pricing service.
func (s *shop) price(ctx context.Context, items int) (float64, error) {
	ctx, span := s.tracer.Start(ctx, "price cart", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/price?items=%d", s.pricing, items), nil)
	if err != nil {
		return 0, err
	}
	inject(ctx, request.Header)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		return 0, err
	}
	defer answer.Body.Close()
	var priced struct{ Total float64 }
	if answer.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, answer.Body)
		span.SetStatus(codes.Error, answer.Status)
		return 0, fmt.Errorf("the pricing service answers %s", answer.Status)
	}
	return priced.Total, json.NewDecoder(answer.Body).Decode(&priced)
}

// wait simulates a call to a database or a bank: it takes time without using CPU.
func (s *shop) wait(ctx context.Context, what string, duration time.Duration) {
	_, span := s.tracer.Start(ctx, what, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	time.Sleep(duration)
}

// signReceipt computes checksums, which uses a little CPU time.
func signReceipt(total float64) [32]byte {
	sum := sha256.Sum256([]byte(fmt.Sprint(total)))
	for range 2000 {
		sum = sha256.Sum256(sum[:])
	}
	return sum
}
