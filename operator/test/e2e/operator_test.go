// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"penstock.dev/operator/test/rig"
)

// operator is one process of it.
type operator struct {
	process *rig.Process
	metrics int // its port
}

// startOperator starts one more, as the Deployment's pod would run.
func (w *world) startOperator(ctx context.Context, more ...string) error {
	number := len(w.operators)
	kubeconfig, err := w.identity(ctx, rig.SystemNamespace, "operator", "", fmt.Sprintf("operator-%d.kubeconfig", number))
	if err != nil {
		return err
	}
	metrics, err := rig.FreePort()
	if err != nil {
		return err
	}
	webhook := w.webhookPort
	if number > 0 { // the API server knows one address; in a cluster the service knows all
		if webhook, err = rig.FreePort(); err != nil {
			return err
		}
	}
	args := append([]string{
		"--kubeconfig", kubeconfig, "--engine", w.lister.Control(), "--namespace", rig.SystemNamespace,
		"--metrics-address", fmt.Sprintf("127.0.0.1:%d", metrics), "--health-address", "0",
		"--agent-patience", "10m", // a machine that stands still for a while is no fault; one test says less
		"--webhook-host", "127.0.0.1", "--webhook-port", strconv.Itoa(webhook),
	}, more...)
	p, err := w.Run(fmt.Sprintf("operator-%d", number), []string{"POD_NAMESPACE=" + rig.SystemNamespace},
		filepath.Join(w.programs, "penstock-operator"), args...)
	if err != nil {
		return err
	}
	w.operators = append(w.operators, &operator{process: p, metrics: metrics})
	return nil
}

// killOperators ends all of them at once, without a word.
func (w *world) killOperators() {
	for _, o := range w.operators {
		o.process.Kill()
	}
	w.operators = nil
}

// restartOperator is another process in the place of all that run.
func (w *world) restartOperator(ctx context.Context) error {
	w.killOperators()
	return w.startOperator(ctx)
}

// figure is one series of its metrics.
func (o *operator) figure(series string) (float64, error) {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", o.metrics))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("there is no %s", series)
}

// reconciled is how often a controller has looked at something and found no error; 0 while nobody answers.
func (o *operator) reconciled(controller string) int {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", o.metrics))
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	sum := 0.0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "controller_runtime_reconcile_total{") ||
			!strings.Contains(line, `controller="`+controller+`"`) ||
			strings.Contains(line, `result="error"`) {
			continue
		}
		if value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64); err == nil {
			sum += value
		}
	}
	return int(sum)
}
