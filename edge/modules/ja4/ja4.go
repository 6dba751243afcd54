// Package ja4 names the TLS library of a client by what it offers in its ClientHello: JA4, as
// FoxIO has it (github.com/FoxIO-LLC/ja4, technical_details/JA4.md, BSD 3-Clause). Only JA4 itself
// is under that licence; JA4S, JA4H and the others are not, and are not here.
//
// Clients of one library and version have one name, whatever their addresses, and so has whoever
// imitates it byte for byte.
package ja4

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"slices"
)

// Size is the length of a name: t13d1516h2_8daaf6152771_e5627efa2ab1.
const Size = 36

// Name is a client's.
type Name [Size]byte

const (
	serverName = 0x0000
	alpn       = 0x0010

	most = 99 // of what is counted, in two digits

	digits = "0123456789abcdef"
)

// Of is the name of who sent a ClientHello, over TCP. It allocates nothing for hellos of a usual
// size.
func Of(hello *tls.ClientHelloInfo) (n Name) {
	var ciphersRoom, extensionsRoom, schemesRoom [64]uint16
	ciphers := withoutGREASE(ciphersRoom[:0], hello.CipherSuites)
	extensions := withoutGREASE(extensionsRoom[:0], hello.Extensions)
	to := append(n[:0], 't')
	to = append(to, version(hello.SupportedVersions)...)
	named := byte('i')
	if slices.Contains(hello.Extensions, serverName) {
		named = 'd'
	}
	to = append(to, named)
	to = appendTwo(to, len(ciphers))
	to = appendTwo(to, len(extensions))
	to = appendEnds(to, hello.SupportedProtos)

	slices.Sort(ciphers)
	to = appendHash(append(to, '_'), ciphers, nil)
	extensions = slices.DeleteFunc(extensions,
		func(e uint16) bool { return e == serverName || e == alpn })
	slices.Sort(extensions)
	// In the order in which they came, which libraries do not shuffle
	schemes := schemesRoom[:0]
	for _, s := range hello.SignatureSchemes {
		schemes = append(schemes, uint16(s))
	}
	appendHash(append(to, '_'), extensions, withoutGREASE(schemes[:0], schemes))
	return n
}

// withoutGREASE appends a list without the values that mean nothing (RFC 8701).
func withoutGREASE(to, list []uint16) []uint16 {
	for _, v := range list {
		if v&0x0f0f != 0x0a0a || v>>8 != v&0xff {
			to = append(to, v)
		}
	}
	return to
}

// version is the highest one that is offered.
func version(offered []uint16) string {
	highest := uint16(0)
	for _, v := range offered {
		if v&0x0f0f != 0x0a0a || v>>8 != v&0xff {
			highest = max(highest, v)
		}
	}
	switch highest {
	case tls.VersionTLS13:
		return "13"
	case tls.VersionTLS12:
		return "12"
	case tls.VersionTLS11:
		return "11"
	case tls.VersionTLS10:
		return "10"
	case 0x0300:
		return "s3"
	}
	return "00"
}

func appendTwo(to []byte, n int) []byte {
	n = min(n, most)
	return append(to, digits[n/10], digits[n%10])
}

// appendEnds appends the first and the last character of the first protocol, or of its bytes in
// hexadecimal where one of them is no letter and no digit.
func appendEnds(to []byte, protocols []string) []byte {
	if len(protocols) == 0 || protocols[0] == "" {
		return append(to, "00"...)
	}
	p := protocols[0]
	first, last := p[0], p[len(p)-1]
	if !isAlphanumeric(first) || !isAlphanumeric(last) {
		return append(to, digits[first>>4], digits[last&15])
	}
	return append(to, first, last)
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// appendHash appends the first twelve digits of the SHA-256 of lists, as hexadecimal numbers with
// commas between, and an underscore between the lists. Of an empty first list it is zeros.
func appendHash(to []byte, list, further []uint16) []byte {
	if len(list) == 0 {
		return append(to, "000000000000"...)
	}
	var room [1024]byte
	text := appendList(room[:0], list)
	if len(further) > 0 {
		text = appendList(append(text, '_'), further)
	}
	sum := sha256.Sum256(text)
	return hex.AppendEncode(to, sum[:6])
}

func appendList(to []byte, list []uint16) []byte {
	for i, v := range list {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(to, digits[v>>12], digits[v>>8&15], digits[v>>4&15], digits[v&15])
	}
	return to
}
