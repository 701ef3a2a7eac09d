//go:build linux && cgo

package cverbs

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"
)

// leaf is one field of a structure or of a structure in it.
type leaf struct {
	name string // path of the field, in lower case and without underscores
	at   uintptr
	typ  reflect.Type
}

func leavesOf(t reflect.Type, path string, at uintptr) (list []leaf) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := path + strings.ToLower(strings.ReplaceAll(f.Name, "_", ""))
		switch {
		case name == path: // padding
		case f.Type.Kind() == reflect.Struct:
			list = append(list, leavesOf(f.Type, name, at+f.Offset)...)
		default:
			list = append(list, leaf{name, at + f.Offset, f.Type})
		}
	}
	return list
}

func (l leaf) bytes(of unsafe.Pointer) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(of, l.at)), l.typ.Size())
}

// eachField sets each field of a structure in turn, converts the structure, and checks that in the
// result exactly the field of the same name is set, with all its bytes. alias maps field names of
// the result to names that differ in the structure. eachField skips the fields of the result that
// other lists.
func eachField[F, T any](t *testing.T, convert func(*F) T, alias map[string]string, other ...string) {
	t.Helper()
	from, to := leavesOf(reflect.TypeFor[F](), "", 0), leavesOf(reflect.TypeFor[T](), "", 0)
	for _, l := range to {
		if slices.Contains(other, l.name) {
			continue
		}
		name := l.name
		if a, ok := alias[name]; ok {
			name = a
		}
		i := slices.IndexFunc(from, func(f leaf) bool { return f.name == name })
		assert.Assert(t, i >= 0, "nothing is called %s: %v", name, from)
		var in F
		n := min(from[i].typ.Size(), l.typ.Size())
		if from[i].typ.Kind() == reflect.Bool || l.typ.Kind() == reflect.Bool {
			n = 1
		}
		set := from[i].bytes(unsafe.Pointer(&in))
		for k := range set[:n] {
			set[k] = byte(k + 1)
		}
		want := bytes.Clone(set[:n])
		got := convert(&in)
		for _, k := range to {
			have := k.bytes(unsafe.Pointer(&got))
			switch {
			case slices.Contains(other, k.name) && k.typ.Kind() == reflect.String:
			case k.name == l.name:
				assert.DeepEqual(t, have[:n], want)
				assert.Assert(t, len(bytes.Trim(have[n:], "\x00")) == 0, "%s: %x", k.name, have)
			default:
				assert.Assert(t, len(bytes.Trim(have, "\x00")) == 0, "%s sets %s", l.name, k.name)
			}
		}
	}
}

// TestEachField: each field of a C structure is converted to the Go field of the same name, and
// back, with all its bytes and without changing other fields.
func TestEachField(t *testing.T) {
	t.Run("device", func(t *testing.T) {
		alias := map[string]string{"caps": "origattrdevicecapflags", "hwversion": "origattrhwver",
			"maxtotalmcastqp": "origattrmaxtotalmcastqpattach", "odpgeneralcaps": "odpcapsgeneralcaps",
			"odprccaps": "odpcapspertransportcapsrcodpcaps", "odpuccaps": "odpcapspertransportcapsucodpcaps",
			"odpudcaps": "odpcapspertransportcapsudodpcaps", "timestampmask": "completiontimestampmask",
			"hcacoreclock": "hcacoreclock", "maxcqmodcount": "cqmodcapsmaxcqcount", "maxcqmodperiod": "cqmodcapsmaxcqperiod",
			"maxdmsize": "maxdmsize", "rawpacketcaps": "rawpacketcaps", "odpxrccaps": "xrcodpcaps",
			"maxtso": "tsocapsmaxtso", "tsoqptypes": "tsocapssupportedqpts", "rssqptypes": "rsscapssupportedqpts",
			"maxindtables": "rsscapsmaxrwqindirectiontables", "maxindtablesize": "rsscapsmaxrwqindirectiontablesize",
			"hashfields": "rsscapsrxhashfieldsmask", "hashfunctions": "rsscapsrxhashfunction", "maxwq": "maxwqtyperq",
			"ratelimitmin": "packetpacingcapsqpratelimitmin",
			"ratelimitmax": "packetpacingcapsqpratelimitmax", "ratelimitqptypes": "packetpacingcapssupportedqpts",
			"pciatomicfadd": "pciatomiccapsfetchadd",
			"pciatomicswap": "pciatomiccapsswap", "pciatomiccmpswap": "pciatomiccapscompareswap"}
		for _, l := range leavesOf(reflect.TypeFor[DeviceAttr](), "", 0) {
			if _, ok := alias[l.name]; !ok {
				alias[l.name] = "origattr" + l.name
			}
		}
		eachField(t, goDeviceAttr, alias, "firmwareversion", "nodeguid", "sysimageguid")
		x := argument(goDeviceAttr)
		copy(fieldOf(x, "origattrfwver"), "1.2.3")
		assert.DeepEqual(t, goDeviceAttr(x), DeviceAttr{FirmwareVersion: "1.2.3"})
		for _, c := range []struct { // fields in network byte order
			name string
			want DeviceAttr
		}{
			{"origattrnodeguid", DeviceAttr{NodeGUID: 0x0102030405060708}},
			{"origattrsysimageguid", DeviceAttr{SysImageGUID: 0x0102030405060708}},
		} {
			x = argument(goDeviceAttr)
			copy(fieldOf(x, c.name), "\x01\x02\x03\x04\x05\x06\x07\x08")
			assert.DeepEqual(t, goDeviceAttr(x), c.want)
		}
		x = argument(goDeviceAttr) // the extended query takes precedence
		fieldOf(x, "origattrdevicecapflags")[0] = 1
		fieldOf(x, "devicecapflagsex")[4] = 2
		assert.Equal(t, goDeviceAttr(x).Caps, DeviceCaps(2<<32))
	})
	t.Run("port", func(t *testing.T) {
		eachField(t, goPortAttr, map[string]string{"gidtablelen": "gidtbllen", "capflags": "portcapflags",
			"maxmsgsize": "maxmsgsz", "pkeytablelen": "pkeytbllen", "capflags2": "portcapflags2"})
	})
	path := map[string]string{"dgid": "grhdgid", "flowlabel": "grhflowlabel", "sgidindex": "grhsgidindex",
		"hoplimit": "grhhoplimit", "trafficclass": "grhtrafficclass", "port": "portnum"}
	t.Run("path", func(t *testing.T) {
		eachField(t, goAHAttr, path)
		eachField(t, func(a *AHAttr) AHAttr { c := a.c(); return goAHAttr(&c) }, nil)
	})
	t.Run("queue pair", func(t *testing.T) {
		alias := map[string]string{"state": "qpstate", "curstate": "curqpstate", "accessflags": "qpaccessflags",
			"port": "portnum", "altport": "altportnum"}
		for _, side := range []string{"ah", "altah"} {
			for _, l := range leavesOf(reflect.TypeFor[AHAttr](), "", 0) {
				name := l.name
				if a, ok := path[name]; ok {
					name = a
				}
				alias[side+l.name] = side + "attr" + name
			}
		}
		alias["capmaxinline"] = "capmaxinlinedata"
		eachField(t, goQPAttr, alias)
		eachField(t, func(a *QPAttr) QPAttr { c := a.c(); return goQPAttr(&c) }, nil)
	})
	t.Run("connection", func(t *testing.T) {
		eachField(t, goConnParam, nil, "privatedata")
		eachField(t, func(p *ConnParam) ConnParam {
			c, _, err := p.c("")
			assert.NilError(t, err)
			return goConnParam(&c)
		}, nil, "privatedata")
	})
}

// argument returns a zero value of the type that a conversion takes, because a test cannot name C
// types.
func argument[F, T any](func(*F) T) *F { return new(F) }

// fieldOf returns the bytes of a field.
func fieldOf[F any](of *F, name string) []byte {
	for _, l := range leavesOf(reflect.TypeFor[F](), "", 0) {
		if l.name == name {
			return l.bytes(unsafe.Pointer(of))
		}
	}
	panic(name)
}
