package loadgen

import "errors"

// The outcomes of a call that are told apart.
var (
	errAgain     = errors.New("would have to wait")
	errRefused   = errors.New("connection refused")
	errReset     = errors.New("connection reset")
	errExhausted = errors.New("no descriptors or ports left")
)

// writeMost writes as much as the socket takes now and returns what is left.
func writeMost(fd int, b []byte) (left []byte, err error) {
	for len(b) > 0 {
		n, err := write(fd, b)
		if err == errAgain {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		b = b[n:]
	}
	return b, nil
}
