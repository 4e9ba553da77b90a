// SPDX-License-Identifier: Apache-2.0
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"
	profilev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// A query, one line of stdin: a method, and its request as ProtoJSON.
type question struct {
	Method  string          `json:"method"`
	Request json.RawMessage `json:"request"`
}

// An answer, a line of stdout: a response as ProtoJSON, or an error's code and message.
type answer struct {
	Response json.RawMessage `json:"response,omitempty"`
	Code     string          `json:"code,omitempty"`
	Message  string          `json:"message,omitempty"`
}

type message[T any] interface {
	*T
	proto.Message
}

type method func(ctx context.Context, request []byte) (proto.Message, error)

func unary[Q, A any, PQ message[Q], PA message[A]](call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error)) method {
	return func(ctx context.Context, text []byte) (proto.Message, error) {
		request := new(Q)
		if err := protojson.Unmarshal(text, PQ(request)); err != nil {
			return nil, err
		}
		got, err := call(ctx, connect.NewRequest(request))
		if err != nil {
			return nil, err
		}
		return PA(got.Msg), nil
	}
}

// askPyroscope sends queries with the client from Grafana's Pyroscope source.
func askPyroscope(ctx context.Context, endpoint string, inJSON, gzipped bool, in io.Reader, out io.Writer) error {
	var options []connect.ClientOption
	if inJSON {
		options = append(options, connect.WithProtoJSON())
	}
	if gzipped {
		options = append(options, connect.WithSendGzip())
	}
	client := querierv1connect.NewQuerierServiceClient(http.DefaultClient, "http://"+endpoint, options...)
	methods := map[string]method{
		"ProfileTypes":           unary[querierv1.ProfileTypesRequest, querierv1.ProfileTypesResponse](client.ProfileTypes),
		"LabelNames":             unary[typesv1.LabelNamesRequest, typesv1.LabelNamesResponse](client.LabelNames),
		"LabelValues":            unary[typesv1.LabelValuesRequest, typesv1.LabelValuesResponse](client.LabelValues),
		"Series":                 unary[querierv1.SeriesRequest, querierv1.SeriesResponse](client.Series),
		"SelectSeries":           unary[querierv1.SelectSeriesRequest, querierv1.SelectSeriesResponse](client.SelectSeries),
		"SelectMergeStacktraces": unary[querierv1.SelectMergeStacktracesRequest, querierv1.SelectMergeStacktracesResponse](client.SelectMergeStacktraces),
		"SelectMergeSpanProfile": unary[querierv1.SelectMergeSpanProfileRequest, querierv1.SelectMergeSpanProfileResponse](client.SelectMergeSpanProfile),
		"SelectMergeProfile":     unary[querierv1.SelectMergeProfileRequest, profilev1.Profile](client.SelectMergeProfile),
		"SelectHeatmap":          unary[querierv1.SelectHeatmapRequest, querierv1.SelectHeatmapResponse](client.SelectHeatmap),
		"Diff":                   unary[querierv1.DiffRequest, querierv1.DiffResponse](client.Diff),
		"GetProfileStats":        unary[typesv1.GetProfileStatsRequest, typesv1.GetProfileStatsResponse](client.GetProfileStats),
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		call, ok := methods[asked.Method]
		if !ok {
			return fmt.Errorf("no method %q", asked.Method)
		}
		got, err := call(ctx, asked.Request)
		if err := printAnswer(out, got, err); err != nil {
			return err
		}
	}
	return lines.Err()
}

func printAnswer(out io.Writer, got proto.Message, failure error) error {
	var said answer
	var refused *connect.Error
	if errors.As(failure, &refused) {
		said = answer{Code: refused.Code().String(), Message: refused.Message()}
	} else if failure != nil {
		return failure
	} else if text, err := protojson.Marshal(got); err != nil {
		return err
	} else {
		said.Response = text
	}
	return json.NewEncoder(out).Encode(said)
}
