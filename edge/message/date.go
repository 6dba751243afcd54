package message

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A date is a second as Date has it, made once for all answers.
type date struct {
	second int64
	value  []byte
}

var lastDate atomic.Pointer[date]

// Date is an instant as Date has it (RFC 9110, 5.6.7). NoClient may write to it.
func Date(at time.Time) []byte {
	d, second := lastDate.Load(), at.Unix()
	if d == nil || d.second != second {
		d = &date{second, at.UTC().AppendFormat(nil, http.TimeFormat)}
		lastDate.Store(d)
	}
	return d.value
}
