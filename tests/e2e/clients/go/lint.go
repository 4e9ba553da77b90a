// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// lintMetrics prints the findings of Prometheus' linter, the one in `promtool check metrics`, about
// a scrape.
func lintMetrics(text io.Reader) error {
	problems, err := promlint.New(text).Lint()
	for _, problem := range problems {
		fmt.Printf("%s: %s\n", problem.Metric, problem.Text)
	}
	return err
}
