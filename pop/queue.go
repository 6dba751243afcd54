package pop

import "sluice/counter"

// queue is counters that wait, first in, first out.
type queue struct {
	list []counter.Counter
	next int
}

func (q *queue) push(c counter.Counter) {
	if q.next > len(q.list)/2 && len(q.list) == cap(q.list) {
		q.list, q.next = append(q.list[:0], q.list[q.next:]...), 0
	}
	q.list = append(q.list, c)
}

func (q *queue) pop() (c counter.Counter, ok bool) {
	if q.next == len(q.list) {
		q.list, q.next = q.list[:0], 0
		return c, false
	}
	q.next++
	return q.list[q.next-1], true
}

// drain appends all to buf and returns it.
func (q *queue) drain(buf []counter.Counter) []counter.Counter {
	buf = append(buf, q.list[q.next:]...)
	q.list, q.next = q.list[:0], 0
	return buf
}
