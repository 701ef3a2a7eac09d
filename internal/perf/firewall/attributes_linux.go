package firewall

import "github.com/mdlayher/netlink"

// Attributes decodes netlink attributes. If an attribute is invalid, it returns the attributes
// before that one.
func Attributes(b []byte) map[uint16][]byte {
	all := map[uint16][]byte{}
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return all
	}
	for d.Next() {
		all[d.Type()] = d.Bytes()
	}
	return all
}

// list decodes an array of attributes.
func list(b []byte) (all [][]byte) {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil
	}
	for d.Next() {
		all = append(all, d.Bytes())
	}
	return all
}
