package http1

import (
	"bytes"

	"sluice/edge/message"
)

// ScanHead reads a header block: lines that end in CRLF, up to an empty line if there is one, and returns the size of the block with that
// line, or 0. What two servers could read differently is an error: a line that ends in LF alone, one that continues the line before, a
// name with white space, a control byte; and so are more than most lines. The lines point into block.
func ScanHead(h *message.Head, block []byte, most int) (size int, err error) {
	h.Reset()
	whole := len(block)
	for len(block) > 0 {
		i := bytes.IndexByte(block, '\n')
		if i < 1 || block[i-1] != '\r' {
			return 0, message.ErrSyntax
		}
		text := block[:i-1]
		block = block[i+1:]
		if len(text) == 0 {
			size = whole - len(block)
			break
		}
		colon := bytes.IndexByte(text, ':')
		if colon < 1 || !message.IsToken(text[:colon]) || !message.IsText(text[colon+1:]) {
			return 0, message.ErrSyntax
		}
		if err := h.Add(text[:colon], message.TrimSpace(text[colon+1:]), most); err != nil {
			return 0, err
		}
	}
	h.End()
	return size, nil
}
