package plans

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"sluice/counter"
)

// A copy is a line that names its origin, and a line for each quota.
type copyHead struct {
	Form  int    `json:"form"`
	Check string `json:"check"`
	Mark
}

type copyLine struct {
	Client string `json:"client"`
	Quota
}

const copyForm = 1

func (k *Loader) restore() error {
	f, err := os.Open(k.Copy)
	if err != nil {
		return err
	}
	defer f.Close()
	in := json.NewDecoder(bufio.NewReaderSize(f, 64<<10))
	var head copyHead
	if err := in.Decode(&head); err != nil {
		return err
	}
	if head.Form != copyForm || head.Check != k.Check {
		return errors.New("it was written under another pop.secret_file, or by another version")
	}
	book := &Builder{now: time.Now().UnixMilli()}
	for {
		var line copyLine
		if err := in.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		client, err := counter.ParseSource(line.Client)
		if err != nil {
			return err
		}
		book.Put(client, line.Quota, false)
	}
	k.book, k.mark, k.saved = book, head.Mark, head.Mark
	return nil
}

// save writes the copy, if there is anything new: 100 bytes for a quota, at most once a minute.
func (k *Loader) save() {
	k.mu.Lock()
	snap, mark := k.snap, k.mark
	k.mu.Unlock()
	if k.Copy == "" || mark == k.saved {
		return
	}
	err := k.write(snap, mark)
	k.mu.Lock()
	k.unkept = err
	k.mu.Unlock()
	if err != nil {
		k.Warn("the copy of the plans cannot be written", "file", k.Copy, "error", err)
		return
	}
	k.saved = mark
}

func (k *Loader) write(snap *Snapshot, mark Mark) (err error) {
	draft, err := os.CreateTemp(filepath.Dir(k.Copy), "."+filepath.Base(k.Copy)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name()) // gone if it has replaced the file
	out := bufio.NewWriterSize(draft, 64<<10)
	lines := json.NewEncoder(out)
	err = lines.Encode(copyHead{copyForm, k.Check, mark})
	for client, c := range snap.All {
		for _, q := range c.quotas {
			err = errors.Join(err, lines.Encode(copyLine{client.String(), q}))
		}
	}
	err = errors.Join(err, out.Flush(), draft.Sync(), draft.Close())
	if err != nil {
		return err
	}
	return os.Rename(draft.Name(), k.Copy)
}
