// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	portTimeout = 20 * time.Second
	stopTimeout = 15 * time.Second
	// USER_HZ: the unit of /proc/PID/stat's times, 100 on every supported Linux.
	ticksPerSecond = 100
)

// server is the process under measurement. A nil server was not started by the driver: it counts as
// alive and has no figures.
type server struct {
	cmd     *exec.Cmd
	started time.Time
	ended   chan struct{}
	err     error
}

func startServer(argv []string, showOutput bool) (*server, error) {
	s := &server{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	if showOutput {
		s.cmd.Stderr = os.Stderr
	}
	// The kernel ends the server if the driver is killed. That is bound to the thread that starts
	// the server, so this thread is kept.
	runtime.LockOSThread()
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	s.started = time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

func (s *server) alive() bool {
	if s == nil {
		return true
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

func (s *server) state() string { return s.cmd.ProcessState.String() }

func (s *server) stop() {
	if !s.alive() {
		return
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		s.cmd.Process.Kill()
		<-s.ended
	}
}

// waitPort returns the milliseconds from fork until addr accepted a connection.
func (s *server) waitPort(addr string) (float64, error) {
	for time.Since(s.started) < portTimeout {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err == nil {
			ms := time.Since(s.started).Seconds() * 1e3
			return ms, c.Close()
		}
		if !s.alive() {
			return 0, fmt.Errorf("the server ended before %s opened: %v", addr, s.state())
		}
		time.Sleep(200 * time.Microsecond)
	}
	return 0, fmt.Errorf("%s did not open within %v", addr, portTimeout)
}

// cpuSeconds returns the user and system time of all the server's threads so far.
func (s *server) cpuSeconds() float64 {
	if s == nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	// The command's name, in parentheses, may contain blanks. utime and stime are fields 14 and 15,
	// the 12th and 13th after it.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	user, _ := strconv.ParseFloat(string(f[11]), 64)
	system, _ := strconv.ParseFloat(string(f[12]), 64)
	return (user + system) / ticksPerSecond
}

// memoryMiB reads one of /proc/PID/status's memory lines.
func (s *server) memoryMiB(key string) float64 {
	if s == nil {
		return 0
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for _, line := range strings.Split(string(status), "\n") {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kib / 1024
		}
	}
	return 0
}
