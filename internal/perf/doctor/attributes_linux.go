package doctor

import "github.com/mdlayher/netlink"

// attributes decodes netlink attributes. If an attribute is invalid, it returns the attributes
// before that one.
func attributes(b []byte) map[uint16][]byte {
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
