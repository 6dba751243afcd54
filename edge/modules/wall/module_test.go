package wall

import (
	"testing"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/edgetest"
)

const origin = "origins: [{servers: ['http://127.0.0.1:1']}]\n"

// A wall is where the configuration in force has one, and what operators see says so.
func TestModule(t *testing.T) {
	use := Module()
	const kernel, socket = origin + "shed: kernel\n", "wall: {socket: /run/wall.sock}\n"
	s := edgetest.NewServer(t, edgetest.Parse(t, kernel+socket, use), edgetest.Using(use))
	for _, f := range []struct {
		yaml string
		want bool
	}{{kernel + socket, true}, {origin + socket, false}, {kernel + socket, true}} {
		edgetest.Must(t, s.Apply(edgetest.Parse(t, f.yaml, use)))
		var state control.State
		use.State(&state)
		if (state.Wall != nil) != f.want || state.Wall != nil && state.Wall.Up {
			t.Errorf("%s: %+v", f.yaml, state.Wall)
		}
	}
}

// An edge that has no wall, or another, has that of its file once it is read again.
func TestWallOfAFileReadAgain(t *testing.T) {
	use := Module()
	const kernel = origin + "shed: kernel\n"
	for _, before := range []string{origin, kernel + "wall: {socket: /run/other.sock}\n"} {
		s := edgetest.NewServer(t, edgetest.Parse(t, before, use), edgetest.Using(use))
		c := config.Running(s.Config(), edgetest.Parse(t, kernel+"wall: {socket: /run/wall.sock}\n", use))
		edgetest.Must(t, s.Apply(c))
		if is := socketOf(s.Config()); is != "/run/wall.sock" {
			t.Errorf("after %s: %s", before, is)
		}
	}
}

// Shed: kernel wants to know where sluice-wall is, also of a program without this module.
func TestKernelWantsAWall(t *testing.T) {
	const want = "shed is kernel but nothing says where sluice-wall is: give wall.socket, such as /run/sluice-wall/wall.sock"
	for _, p := range []config.Parser{{}, {Modules: edge.Modules{Module()}.Config()}} {
		c, err := p.Parse("f.yaml", []byte(origin+"shed: kernel"))
		edgetest.Must(t, err)
		if err := c.Check(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
