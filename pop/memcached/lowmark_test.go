package memcached_test

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"sluice/pop/memcached"
	"sluice/pop/wire"
)

// countedConn counts reads, and otherwise is the socket it holds.
type countedConn struct {
	*net.TCPConn
	reads *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	c.reads.Add(1)
	return c.TCPConn.Read(b)
}

// TestAnswersAreReadTogether: answers to a large burst that come one by one are not read one by one, and if the node stops in the
// middle of them, those that have come are not held up. A pause of a busy machine may part one burst or two into many reads; without
// what reads them together most bursts are.
func TestAnswersAreReadTogether(t *testing.T) {
	const n, bursts = 1024, 9
	var reads []int64
	parted := 0
	for range bursts {
		reads = append(reads, readsOfBurst(t, n))
		if reads[len(reads)-1] > n/4 {
			parted++
		}
	}
	if parted > 2 {
		t.Errorf("%d reads of %d answers", reads, n)
	}
}

// readsOfBurst is how many reads a pipeline needs for n answers that a node writes one by one.
func readsOfBurst(t *testing.T, n int) int64 {
	const before = 30 // the node stops after so many until they have arrived
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	goOn := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewScanner(c)
		for i := range n { // all of them, first
			if !in.Scan() {
				t.Errorf("%d commands of %d: %v", i, n, in.Err())
				return
			}
		}
		for i := range n {
			if i == before {
				<-goOn
			}
			if _, err := c.Write([]byte("1\r\n")); err != nil {
				t.Error(err)
				return
			}
		}
		in.Scan() // until the pipeline hangs up
	}()
	var reads atomic.Int64
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, l.Addr().String())
		if err != nil {
			return nil, err
		}
		return countedConn{c.(*net.TCPConn), &reads}, nil
	}
	arrived := make(chan wire.Result, n)
	p := memcached.NewPipeline(dial, l.Addr().String(), func(rs []wire.Result) {
		for _, r := range rs {
			arrived <- r
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	cmds := make([]wire.Command, n)
	for i := range cmds {
		cmds[i] = incr("k")
	}
	p.Send(cmds)
	for i := range n {
		if i == before { // else they are given up, with an error, and the node never goes on
			close(goOn)
		}
		if r := <-arrived; r.Status != wire.Done {
			t.Fatalf("answer %d: %v, %v", i, r.Status, r.Err)
		}
	}
	return reads.Load()
}
