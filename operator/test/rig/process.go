// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that the rig has started. It ends with the test's process, however that ends.
type Process struct {
	Name string
	Log  string // what it printed

	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // valid once done is closed
}

// The kernel sends the death signal when the thread that started a child ends, so one thread that never ends starts
// them.
var starter struct {
	once sync.Once
	work chan func()
}

func onStarter(what func()) {
	starter.once.Do(func() {
		starter.work = make(chan func())
		go func() {
			runtime.LockOSThread()
			for job := range starter.work {
				job()
			}
		}()
	})
	done := make(chan struct{})
	starter.work <- func() { what(); close(done) }
	<-done
}

// Run starts a program with the given words beside the environment's usual ones. Its output goes to NAME.log in the
// rig's folder; a second program of one name adds to it.
func (r *Rig) Run(name string, environ []string, program string, args ...string) (*Process, error) {
	log := filepath.Join(r.Dir, name+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	fmt.Fprintf(out, "+ %s %s\n", program, strings.Join(args, " "))

	cmd := exec.Command(program, args...)
	// A home of its own: nothing may come from the settings of whoever runs the tests.
	cmd.Env = append([]string{"HOME=" + r.Dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}, environ...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, r.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	onStarter(func() { err = cmd.Start() })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &Process{Name: name, Log: log, cmd: cmd, done: make(chan struct{})}
	go func() { p.err = cmd.Wait(); close(p.done) }()

	r.lock.Lock()
	defer r.lock.Unlock()
	r.running = append(r.running, p)
	return p, nil
}

func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode of a process that has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process as a lost node would, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// End asks the process to end and kills it if it does not within the time.
func (p *Process) End(patience time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		p.Kill()
		return errors.New(p.Name + " had to be killed")
	}
}

// Tail is the end of what the process printed, for messages.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// until waits for a process to be as it should, and gives up early when it has ended.
func (p *Process) until(what string, limit time.Duration, ready func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not %s after %s: %w\n%s", p.Name, what, limit, err, p.Tail())
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %v\n%s", p.Name, p.err, p.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
