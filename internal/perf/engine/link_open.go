package engine

import (
	"errors"
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// openLink creates this end of a case's connections on a device and posts its receives.
func openLink(c *result.Case, lay layout, chosen choice) (link, error) {
	var l link
	var err error
	switch c.Layer {
	case result.UDAT:
		l, err = openUDAT(c, lay, chosen)
	case result.Cverbs:
		if chosen.Fabric != fabricVerbs {
			return nil, fmt.Errorf("--layer cverbs: %s has no verbs beneath it; use --layer udat, or --device with a verbs "+
				"device", chosen.Name)
		}
		l, err = openCverbs(c, lay, chosen)
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
