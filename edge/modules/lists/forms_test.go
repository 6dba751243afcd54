package lists

import (
	"strings"
	"testing"
)

// Lists come as search engines, clouds, block lists and other programs write them. What is none of
// their forms is one error, which says what the list seems to be.
func TestForms(t *testing.T) {
	f := func(column, text, want string) {
		t.Helper()
		got := entriesOf(&Config{File: "f", Column: Column(column), MaxEntries: 100}, text)
		if got = strings.TrimPrefix(got, "f:"); got != want {
			t.Errorf("%q\n got %s\nwant %s", text, got, want)
		}
	}
	const notPrefix = " is not a prefix: want CIDR such as 192.0.2.0/24 or 2001:db8::/48, or an address"

	// JSON: one document, or one a line.
	f("", `{"prefixes": [{"ipv4Prefix": "192.0.2.0/27"}, {"ipv6Prefix": "2001:db8:1::/64"}], "creationTime": "2026-02-01"}`, "2 192.0.2.0/27 2001:db8:1::/64")
	f("", `{"syncToken": "1", "prefixes": [{"ip_prefix": "192.0.2.0/24", "region": "eu"}], "ipv6_prefixes": [{"ipv6_prefix": "2001:db8::/40", "service": "S"}]}`, "2 192.0.2.0/24 2001:db8::/40")
	f("", "{\"cidr\":\"192.0.2.0/24\",\"id\":\"A1\"}\n{\"cidr\":\"198.51.100.0/24\"}\n{\"type\":\"metadata\",\"records\":2}\n", "2 192.0.2.0/24 198.51.100.0/24")
	f("", `{"hooks": ["192.0.2.0/24"], "actions": ["198.51.100.0/24", "2001:db8::/32"], "domains": ["a.example"], "key": "1.2.3"}`, "3 192.0.2.0/24 198.51.100.0/24 2001:db8::/32")
	f("", `{"addresses":["192.0.2.0/24"],"ipv6_addresses":["2001:db8::/32"]}`, "2 192.0.2.0/24 2001:db8::/32")
	f("", `{"values":[{"name":"N","properties":{"addressPrefixes":["192.0.2.0/31"]}}]}`, "1 192.0.2.0/31")
	f("", `["192.0.2.1", "192.0.2.2"]`, "2 192.0.2.1/32 192.0.2.2/32")
	f("", `{"items":[{"cidr":"192.0.2.0/24"},{"cidr":"all of them"},{"cidr":""}]}`, `1: "all of them"`+notPrefix+"; 2 of 3 entries are not")
	f("", `{"version": "1.2.3.4", "text": "192.0.2.1"}`, " it is JSON, and no field of it that could have prefixes, such as cidr, ip_prefix or addresses, has one")
	f("", "{\n\"cidr\": oops}", "2: it begins as JSON, and is none")

	// Ranges.
	f("", "192.0.2.10-192.0.2.20\n2001:db8::1 - 2001:db8::2", "2 192.0.2.10/31 192.0.2.12/30 192.0.2.16/30 192.0.2.20/32 2001:db8::1/128 2001:db8::2/128")
	f("", "192.0.2.0-192.0.2.255", "1 192.0.2.0/24")
	f("", "255.255.255.254-255.255.255.255\nffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2 255.255.255.254/31 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")
	f("", "0.0.0.0-255.255.255.255", "1: 0.0.0.0/0 is every address: a list has some")
	f("", "192.0.2.9-192.0.2.8", `1: "192.0.2.9-192.0.2.8" is no range of addresses: want the first and the last, of one family`)
	f("", "192.0.2.9-2001:db8::", `1: "192.0.2.9-2001:db8::" is no range of addresses: want the first and the last, of one family`)
	f("", "# block list\nStart\tEnd\tNetmask\tName\n192.0.2.0\t192.0.2.255\t24\tN\n", "1 192.0.2.0/24")

	// Of other programs.
	f("", "deny 192.0.2.1;\n deny 198.51.100.0/24; # them\nallow all;\n", "2 192.0.2.1/32 198.51.100.0/24")
	f("", "Deny from 192.0.2.1\n", "1 192.0.2.1/32")
	f("", "allow 192.0.2.1;\ndeny all;\n", "1 192.0.2.1/32")
	f("", "allow 192.0.2.1;\ndeny 192.0.2.0/24;\n", `2: "deny 192.0.2.0/24"`+notPrefix+": it seems to be nginx's, with both deny and allow: make a list of each")
	f("", "create bad hash:net family inet hashsize 1024\nadd bad 192.0.2.0/24\nadd bad 192.0.2.9 timeout 30\n", "2 192.0.2.0/24 192.0.2.9/32")
	f("", "add bad 192.0.2.0/24\nadd bad 192.0.2.9 nomatch\n", `2: "add bad 192.0.2.9 nomatch"`+notPrefix+": it seems to be an ipset with exceptions: give those to match.not")

	// A column of CSV.
	f("1", "192.0.2.1,9\n192.0.2.2,8\n", "2 192.0.2.1/32 192.0.2.2/32")
	f("2", "name,network\n\"A, B\",192.0.2.0/24\n# more\nC, 198.51.100.8-198.51.100.9\n", "2 192.0.2.0/24 198.51.100.8/31")
	f("IP", "\"when\";\"ip\"\n1;192.0.2.1\n", "1 192.0.2.1/32")
	f("ip", "when,address\n1,192.0.2.1\n", `1: no column is named "ip": name one of the first row, or say its number, from 1`)
	f("3", "a,b,c\n1,2,192.0.2.1\n1,2\n", "3: the row has no column 3")

	// What is none of these.
	f("", "192.0.2.1,FR\n192.0.2.2,FR\n", `1: "192.0.2.1,FR"`+notPrefix+"; 2 of 2 entries are not: it seems to be CSV: say which column has the addresses, as in column: 1")
	f("", "// them\n192.0.2.1\n", `1: "// them"`+notPrefix+": it seems to have comments that begin with //: they begin with #")
	f("", "<html>\n", `1: "<html>"`+notPrefix+": it seems to be HTML or XML: want the list itself, as text or JSON")
	f("", "\x1f\x8b\x08", "1: \"\\x1f\\x8b\\b\""+notPrefix+": it seems to be compressed: unpack it")
	f("", "0.0.0.0 ads.example\n", `1: "0.0.0.0 ads.example"`+notPrefix+": it seems to be a file of hosts: want one address or prefix a line, and # before what is said of it")
	f("", "192.0.2.0/24 1;\n", `1: "192.0.2.0/24 1"`+notPrefix+": it seems to be a geo of nginx: leave out the values behind its prefixes")
	f("", "192.0.2.1:80\n", `1: "192.0.2.1:80"`+notPrefix+": it seems to have ports: want addresses without them")
	f("", "[2001:db8::1]\n", `1: "[2001:db8::1]"`+notPrefix+": an address stands without brackets")
	f("", "bad.example\n", `1: "bad.example"`+notPrefix+": it seems to be a list of names: want addresses, because no name is looked up")
	f("", "- 192.0.2.1\n", `1: "- 192.0.2.1"`+notPrefix+": it seems to be YAML: write its entries without the dash")
	f("", "!! no !!\n", `1: "!! no !!"`+notPrefix)
}
