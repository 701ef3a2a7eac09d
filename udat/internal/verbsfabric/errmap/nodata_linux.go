package errmap

import "syscall"

const noData = syscall.ENODATA
