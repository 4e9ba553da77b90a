// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // enables the sink to read compressed messages
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

const maxMessage = 64 << 20

// rawCodec passes message bytes through gRPC unchanged, by reference.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal passes the buffers themselves to the receiver, which frees them.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if out, ok := v.(*mem.BufferSlice); ok {
		data.Ref()
		*out = data
	}
	return nil
}

// sink is an OTLP backend that counts the records of one signal and discards them.
type sink struct {
	signal                 signalKind
	want                   string // compression; "": any
	items, requests, bytes atomic.Int64
	grpc                   *grpc.Server
	http                   *http.Server
}

func newSink(kind signalKind, addrGRPC, addrHTTP, want string) (*sink, error) {
	s := &sink{signal: kind, want: want}
	lg, err := net.Listen("tcp", addrGRPC)
	if err != nil {
		return nil, err
	}
	lh, err := net.Listen("tcp", addrHTTP)
	if err != nil {
		lg.Close()
		return nil, err
	}
	s.grpc = grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxRecvMsgSize(maxMessage),
		grpc.StatsHandler(compressionSpy{}), grpc.UnknownServiceHandler(s.onCall))
	s.http = &http.Server{Handler: http.HandlerFunc(s.onPost)}
	go s.grpc.Serve(lg)
	go s.http.Serve(lh)
	return s, nil
}

// arrived returns the number of records counted so far.
type arrived struct{ items, requests, bytes int64 }

func (s *sink) arrived() arrived {
	return arrived{s.items.Load(), s.requests.Load(), s.bytes.Load()}
}

// await returns when that many records have arrived, or no more are expected.
func (s *sink) await(ctx context.Context, items int64, limit time.Duration, srv *server) {
	for t := time.Now(); s.items.Load() < items && time.Since(t) < limit && srv.alive() && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *sink) stop() {
	s.grpc.Stop()
	s.http.Close()
}

func (s *sink) onCall(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if method != s.signal.method {
		return status.Errorf(codes.Unimplemented, "this run is about %s", s.signal.method)
	}
	seen, _ := stream.Context().Value(spyKey{}).(*string)
	if err := s.checkCompression(*seen); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	var data mem.BufferSlice
	if err := stream.RecvMsg(&data); err != nil {
		return err
	}
	body := data.MaterializeToBuffer(mem.DefaultBufferPool())
	data.Free()
	s.take(body.ReadOnlyData())
	body.Free()
	empty := []byte{}
	return stream.SendMsg(&empty)
}

func (s *sink) onPost(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != s.signal.path {
		http.NotFound(w, r)
		return
	}
	encoding := r.Header.Get("Content-Encoding")
	body := io.Reader(r.Body)
	err := s.checkCompression(encoding)
	if err == nil && encoding == "gzip" {
		body, err = gzip.NewReader(r.Body)
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(body, maxMessage))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.take(data)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (s *sink) take(body []byte) {
	s.items.Add(int64(count(body, s.signal.itemPath)))
	s.bytes.Add(int64(len(body)))
	s.requests.Add(1)
}

func (s *sink) checkCompression(seen string) error {
	if seen == "" || seen == "identity" {
		seen = "none"
	}
	if s.want != "" && s.want != seen {
		return fmt.Errorf("compression is %s, this run is about %s", seen, s.want)
	}
	return nil
}

// compressionSpy records a call's compression, which gRPC reports only to a stats handler.
type compressionSpy struct{}

type spyKey struct{}

func (compressionSpy) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, spyKey{}, new(string))
}

func (compressionSpy) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if header, ok := s.(*stats.InHeader); ok {
		*ctx.Value(spyKey{}).(*string) = header.Compression
	}
}

func (compressionSpy) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (compressionSpy) HandleConn(context.Context, stats.ConnStats) {}

// count returns the number of submessages at the end of path, a field number for each level. It
// skips everything else by its length.
func count(b []byte, path []protowire.Number) int {
	n := 0
	for len(b) > 0 {
		num, typ, tagLen := protowire.ConsumeTag(b)
		if tagLen < 0 {
			return n
		}
		valueLen := protowire.ConsumeFieldValue(num, typ, b[tagLen:])
		if valueLen < 0 {
			return n
		}
		if num == path[0] && typ == protowire.BytesType {
			if len(path) == 1 {
				n++
			} else {
				inner, _ := protowire.ConsumeBytes(b[tagLen:])
				n += count(inner, path[1:])
			}
		}
		b = b[tagLen+valueLen:]
	}
	return n
}
