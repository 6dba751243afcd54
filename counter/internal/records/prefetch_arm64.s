#include "textflag.h"

// func prefetch(tags, record unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVD tags+0(FP), R0
	MOVD record+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
