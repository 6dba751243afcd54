#include "textflag.h"

// func prefetch(tags, record unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ tags+0(FP), AX
	MOVQ record+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	RET
