package engine

import (
	"errors"

	"github.com/godat/godat/internal/perf/result"
)

// openLink creates this end of a case's connections on a device and posts its receives.
func openLink(c *result.Case, lay layout, chosen choice) (link, error) {
	var l link
	var err error
	switch c.Layer {
	case result.Cverbs:
		l, err = openCverbs(c, lay, chosen)
	case result.TCP:
		l, err = openTCP(c, lay, chosen)
	default:
		l, err = openUDAT(c, lay, chosen)
	}
	if err != nil {
		return nil, err
	}
	fillMemory(&lay, l.bytes())
	if err := postFirstReceives(c, l); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func postFirstReceives(c *result.Case, l link) error {
	if !c.TwoSided() {
		return nil
	}
	if c.SRQ {
		return l.receive(0, 0, c.RxDepth)
	}
	for qp := range c.QPs {
		if err := l.receive(qp, 0, c.RxDepth); err != nil {
			return err
		}
	}
	return nil
}
