// A small disassembly written by hand, as nvdisasm and as cuobjdump would print it.
#pragma once

#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>

#include "sass_listing.hpp"

namespace backlight::test {

/// Two loops with products. The first holds a small loop; each has a wait, whose repetition lies
/// behind the end and jumps back into the loop.
inline constexpr std::string_view labelled_listing = R"(
	.target	sm_120a
	.section	.text.some_kernel,"ax",@progbits
some_kernel:
.text.some_kernel:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_0:
        /*0010*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1], R2 ;
        /*0020*/              @!P0 BRA `(.L_x_5) ;
.L_x_1:
        /*0030*/                   LDSM.16.M88.4 R4, [R3] ;
        /*0040*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
.L_x_2:
        /*0050*/               @P1 BRA.U.ANY `(.L_x_2) ;
        /*0060*/                   MUFU.EX2 R9, R9 ;
        /*0070*/                   BRA.U UP0, `(.L_x_0) ;
.L_x_3:
        /*0080*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1], R2 ;
        /*0090*/              @!P0 BRA `(.L_x_6) ;
.L_x_4:
        /*00a0*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*00b0*/               @P2 BRA `(.L_x_3) ;
        /*00c0*/                   EXIT ;
.L_x_5:
        /*00d0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1], R2 ;
        /*00e0*/              @!P0 BRA `(.L_x_5) ;
        /*00f0*/                   BRA `(.L_x_1) ;
.L_x_6:
        /*0100*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1], R2 ;
        /*0110*/              @!P0 BRA `(.L_x_6) ;
        /*0120*/                   BRA `(.L_x_4) ;
.L_x_7:
        /*0130*/                   BRA `(.L_x_7);
        /*0140*/                   NOP;
.L_x_8:
)";

/// The same with addresses in the branches, and the encodings beside and below.
inline std::string addressed_listing() {
    const auto function = tool::parse_sass(labelled_listing).front();
    std::ostringstream text;
    text << "\n\tcode for sm_120a\n\t\tFunction : " << function.name
         << "\n\t.headerflags\t@\"EF_CUDA_SM120\"\n"
         << std::hex;
    for (const tool::SassInstruction& instruction : function.instructions) {
        std::string operands = instruction.operands;
        if (instruction.target) {
            std::ostringstream address;
            address << std::hex << "0x" << function.instructions[*instruction.target].address;
            operands = operands.substr(0, operands.find('`')) + address.str();
        }
        text << "        /*" << std::setw(4) << std::setfill('0') << instruction.address << "*/  "
             << (instruction.guarded ? "@!P0 " : "") << instruction.opcode << ' ' << operands
             << " ;   /* 0x0000000000007918 */\n        /* 0x000fe20000000800 */\n";
    }
    text << "\t\t..........\n";
    return text.str();
}

}  // namespace backlight::test
