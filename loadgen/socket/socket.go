// Package socket is what a load generator needs of TCP beyond package net: connections that never
// wait, from any address of 127.0.0.0/8, thousands of them polled by one thread (epoll). Linux
// only; elsewhere every call fails.
package socket

import "errors"

// The outcomes of a call that are distinguished.
var (
	ErrAgain     = errors.New("would have to wait")
	ErrRefused   = errors.New("connection refused")
	ErrReset     = errors.New("connection reset")
	ErrExhausted = errors.New("no descriptors or ports left")
)

// WriteMost writes as much as the socket takes now and returns what is left.
func WriteMost(fd int, b []byte) (left []byte, err error) {
	for len(b) > 0 {
		n, err := Write(fd, b)
		if err == ErrAgain {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		b = b[n:]
	}
	return b, nil
}
