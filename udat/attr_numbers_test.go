package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestAttrNumbers: the values of attributes have the numbers of DAT's headers.
func TestAttrNumbers(t *testing.T) {
	withoutDevice(t)
	assert.DeepEqual(t, []udat.IOVOwnership{udat.IOVConsumer, udat.IOVProviderNoMod, udat.IOVProviderMod},
		[]udat.IOVOwnership{0, 1, 2})
	assert.DeepEqual(t, []udat.EPCreator{udat.EPCreatorNever, udat.EPCreatorIfAsked, udat.EPCreatorAlways},
		[]udat.EPCreator{0, 1, 2})
	assert.DeepEqual(t, []udat.PZSupport{udat.PZUnique, udat.PZSame, udat.PZShareable}, []udat.PZSupport{0, 1, 2})
	assert.DeepEqual(t, []udat.SRQWatermarks{udat.SRQWatermarkLow, udat.SRQWatermarkSoftHigh, udat.SRQWatermarkHardHigh},
		[]udat.SRQWatermarks{0x001, 0x010, 0x100})
	assert.DeepEqual(t, []udat.SRQInfo{udat.SRQInfoAvailable, udat.SRQInfoOutstanding}, []udat.SRQInfo{0x01, 0x10})
	assert.DeepEqual(t, []udat.EPRecvInfo{udat.EPRecvInfoAllocated, udat.EPRecvInfoSpan}, []udat.EPRecvInfo{0x01, 0x10})
}

// TestStatusNumbers: the statuses have the numbers of DAT's headers.
func TestStatusNumbers(t *testing.T) {
	withoutDevice(t)
	for n, status := range []udat.DTOStatus{udat.DTOSuccess, udat.DTOErrFlushed, udat.DTOErrLocalLength,
		udat.DTOErrLocalEP, udat.DTOErrLocalProtection, udat.DTOErrBadResponse, udat.DTOErrRemoteAccess,
		udat.DTOErrRemoteResponder, udat.DTOErrTransport, udat.DTOErrReceiverNotReady, udat.DTOErrPartialPacket,
		udat.RMROperationFailed} {
		assert.Equal(t, status, udat.DTOStatus(n))
	}
}
