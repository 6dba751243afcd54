package http1

import (
	"bytes"

	"sluice/edge/message"
)

// ScanHead reads a header block: lines that end in CRLF, up to an empty line if there is one, and
// returns the size of the block with that line, or 0. What two servers could read differently is an
// error: a line that ends in LF alone, one that continues the line before, a name with white space,
// a control byte; and so are more than most lines. The lines point into block.
func ScanHead(h *message.Head, block []byte, most int) (size int, err error) {
	return scan(h, block, most, false)
}

// scan is ScanHead. Of an answer the white space between a name and its colon is removed, as a
// proxy must (RFC 9112, 5.1), but for the names that say where the answer ends. A request with it
// is refused.
func scan(h *message.Head, block []byte, most int, answer bool) (size int, err error) {
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
		if colon < 1 {
			return 0, message.ErrSyntax
		}
		name := text[:colon]
		if answer && (text[colon-1] == ' ' || text[colon-1] == '\t') {
			name = bytes.TrimRight(name, " \t")
			switch message.KindOf(name) {
			case message.Connection, message.ContentLength, message.TransferEncoding:
				return 0, message.ErrSyntax
			}
		}
		if !message.IsToken(name) || !message.IsText(text[colon+1:]) {
			return 0, message.ErrSyntax
		}
		if err := h.Add(name, message.TrimSpace(text[colon+1:]), most); err != nil {
			return 0, err
		}
	}
	h.End()
	return size, nil
}
