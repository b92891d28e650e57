"""Checks that a program runs on any x86-64 CPU: no instruction of AVX or later outside the section of the x86-64-v3
version (cmake/cpu_dispatch.cmake). usage: instructions_test.py OBJDUMP PROGRAM"""

import re
import subprocess
import sys

# Instructions of AVX and later start with v; BMI instructions have other names. Register names identify the rest.
# verr and verw are older.
NEWER = re.compile(r"\t(v(?!err|erw)[a-z0-9]+|andn|bextr|blsi|blsr|blsmsk|mulx|pdep|pext|rorx|sarx|shlx|shrx|movbe)\b|%[yz]mm")


def functions_with_newer_instructions(objdump, program, section):
    found, function, lines = {}, "", 0
    with subprocess.Popen(
        [objdump, "-d", "--no-show-raw-insn", "-j", section, program], stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            lines += 1
            if line.endswith(">:\n"):
                function = line.split("<", 1)[1][:-3]
            elif NEWER.search(line):
                found.setdefault(function, line.split("\t", 1)[1].strip())
    if process.returncode != 0 or lines < 100:
        sys.exit(f"{objdump} shows no code in section {section} of {program}")
    return found


def main():
    objdump, program = sys.argv[1:]
    wrong = functions_with_newer_instructions(objdump, program, ".text")
    for function, instruction in sorted(wrong.items())[:20]:
        print(f"{function}: {instruction}")
    chosen = functions_with_newer_instructions(objdump, program, "some_v3")
    print(f"{len(wrong)} functions outside some_v3 need AVX or later, {len(chosen)} inside")
    return 1 if wrong or len(chosen) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
