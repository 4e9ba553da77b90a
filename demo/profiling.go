// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"runtime/pprof"
	"time"

	"github.com/google/pprof/profile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// profiling takes one CPU profile after the other and sends each as OTLP.
type profiling struct {
	connection *grpc.ClientConn
	client     pprofileotlp.GRPCClient
	samples    int
}

func newProfiling(endpoint string) (*profiling, error) {
	connection, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &profiling{connection: connection, client: pprofileotlp.NewGRPCClient(connection)}, nil
}

func (p *profiling) close() error {
	return p.connection.Close()
}

func (p *profiling) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.once(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *profiling) once(ctx context.Context) error {
	var taken bytes.Buffer
	if err := pprof.StartCPUProfile(&taken); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
	pprof.StopCPUProfile()
	cpu, err := profile.Parse(&taken)
	if err != nil {
		return err
	}
	all, err := toOTLP(cpu)
	if err != nil {
		return err
	}
	p.samples += all.SampleCount()
	sending, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	_, err = p.client.Export(sending, pprofileotlp.NewExportRequestFromProfiles(all), grpc.WaitForReady(true))
	return err
}
