package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"sluice/counter"
)

// maxPeers bounds the PoPs that one block is sent to, and that may send some.
const maxPeers = 16

func (r *reader) peer(n ast.Node, p *PoP) {
	var peer Peer
	edge := r.text("pop.peers.edges", func(n ast.Node, text string) {
		if err := checkPeer(text); err != nil {
			r.fail(n, "pop.peers.edges: %v", err)
		} else if slices.Contains(peer.Edges, text) {
			r.fail(n, "pop.peers.edges: %s is there twice: remove one", text)
		}
		peer.Edges = append(peer.Edges, text)
	})
	seen := r.mapping(n, "pop.peers", fields{
		"name": r.text("pop.peers.name", func(n ast.Node, text string) {
			if err := CheckPoPName(text); err != nil {
				r.fail(n, "pop.peers.name: %v", err)
			} else if slices.ContainsFunc(p.Peers,
				func(other Peer) bool { return other.Name == text }) {
				r.fail(n,
					"pop.peers.name: %s is there twice: name each PoP once, with all its edges",
					text)
			}
			peer.Name = text
		}),
		"edges": func(n ast.Node) {
			r.list(n, "pop.peers.edges", func(n ast.Node) {
				switch n.(type) {
				// As the reader of YAML has it within braces
				case *ast.MappingNode, *ast.MappingValueNode:
					r.fail(n,
						"pop.peers.edges: want HOST:PORT, within braces in quotes: \"10.2.0.21:8082\"")
				default:
					edge(n)
				}
			})
		},
	})
	switch {
	case seen == nil:
		return
	case seen["name"] == nil:
		r.fail(n, "pop.peers: a peer without a name: give the pop.name of its edges")
	case len(peer.Edges) == 0 && seen["edges"] == nil:
		r.fail(n,
			"pop.peers: %s has no edges: name where they listen for peers (their peers_listen), as HOST:PORT", peer.Name)
	case len(peer.Edges) > counter.MaxEdges:
		r.fail(seen["edges"], "pop.peers.edges: more than %d: a PoP has no more", counter.MaxEdges)
	case len(p.Peers) == maxPeers:
		r.fail(n, "pop.peers: more than %d: leave out some", maxPeers)
	}
	p.Peers = append(p.Peers, peer)
}

func checkPeer(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" || port == "0" {
		return fmt.Errorf("%q is not the address of an edge: want HOST:PORT, as in its peers_listen", text)
	}
	return nil
}

// checkPeers reports what is missing beside peers.
func (c *Config) checkPeers() error {
	p := &c.PoP
	switch {
	case len(p.Peers) == 0 && p.PeersListen != "":
		return errors.New("pop.peers_listen is " + p.PeersListen +
			" but no PoP may send anything there: name them under pop.peers, or remove it")
	case len(p.Peers) == 0 && p.PeersSecretFile != "":
		return errors.New("pop.peers_secret_file is given but there are no peers: name them under pop.peers, or remove it")
	case len(p.Peers) == 0 && p.PeersMode == "off":
		return errors.New("pop.peers_mode is off but there are no peers: remove it")
	case len(p.Peers) == 0:
		return nil
	case len(p.Memcached) == 0:
		return errors.New("pop.peers: blocks travel between PoPs whose edges share what they know: give pop.memcached, or remove peers")
	case p.PeersSecretFile == "":
		return errors.New("pop.peers: without a secret anyone could block any source: give pop.peers_secret_file, the same in all these PoPs")
	case p.PeersListen == "":
		return errors.New("pop.peers: no PoP can send this edge anything: give pop.peers_listen, such as \":8082\"")
	case c.forClients(p.PeersListen) || p.PeersListen == c.Admin:
		return errors.New("pop.peers_listen is " + p.PeersListen +
			", where something else listens already: give it another address")
	case slices.ContainsFunc(p.Peers, func(peer Peer) bool { return peer.Name == p.Name }):
		return errors.New("pop.peers names " + p.Name + ", which is this PoP: leave it out")
	}
	return nil
}
