#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each checker of tools/ must be able to fail: small trees with one fault each, and the same trees without it."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.path.join(ROOT, "tools")
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        self.addCleanup(self.folder.cleanup)

    def put(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as handle:
            handle.write(text)
        return full

    def run_tool(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def python_tool(self, name):
        return self.run_tool([sys.executable, os.path.join(TOOLS, name), self.root])

    def refuses(self, tool, path, text, words):
        self.put(path, text)
        code, said = self.python_tool(tool)
        self.assertEqual(code, 1, said)
        self.assertIn(words, said)
        self.assertIn(path + ":", said)

    def accepts(self, tool, path, text):
        self.put(path, text)
        self.assertEqual(self.python_tool(tool), (0, ""))


class Includes(Tree):
    TOOL = "check_includes.py"

    def test_sibling_room_is_refused(self):
        self.refuses(self.TOOL, "src/codec/jpeg.c", SPDX + '#include "op/op.h"\n', "codec may not include op")

    def test_core_includes_no_room(self):
        self.refuses(self.TOOL, "src/core/log.c", SPDX + '#include "engine/engine.h"\n', "no room")

    def test_arrow_in_the_right_direction_is_accepted(self):
        self.accepts(self.TOOL, "src/pipeline/parse.c", SPDX + '#include "op/op.h"\n#include "core/hash.h"\n')

    def test_private_header_stays_inside(self):
        self.refuses(self.TOOL, "src/engine/job.c", SPDX + '#include "sched/sched_priv.h"\n', "private to sched")

    def test_private_header_is_accepted_inside(self):
        self.accepts(self.TOOL, "src/sched/worker.c", SPDX + '#include "sched/sched_priv.h"\n')

    def test_only_the_public_header_of_another_room(self):
        self.refuses(self.TOOL, "src/engine/job.c", SPDX + '#include "codec/jpeg.h"\n', "only codec/codec.h")

    def test_front_sees_the_public_header_alone(self):
        for front in ("cli", "python", "examples"):
            self.refuses(self.TOOL, front + "/main.c", SPDX + '#include "core/memory.h"\n', "penstock.h")

    def test_front_may_have_headers_of_its_own(self):
        self.put("cli/cli.h", SPDX)
        self.accepts(self.TOOL, "cli/main.c", SPDX + '#include "cli.h"\n#include "penstock.h"\n')

    def test_include_that_is_not_rooted(self):
        self.put("src/codec/jpeg.h", SPDX)
        self.refuses(self.TOOL, "src/codec/jpeg.c", SPDX + '#include "jpeg.h"\n', "rooted")

    def test_library_header_in_the_wrong_room(self):
        self.refuses(self.TOOL, "src/op/flip.c", SPDX + "#include <jpeglib.h>\n", "belongs to")

    def test_room_that_nobody_knows(self):
        self.refuses(self.TOOL, "src/attic/old.c", SPDX, "not in the table")

    def test_test_of_another_room_may_not_look_inside(self):
        self.refuses(self.TOOL, "tests/op/test_a.c", SPDX + '#include "codec/codec_priv.h"\n', "private to codec")


class Style(Tree):
    TOOL = "check_style.py"

    def function(self, lines):
        return SPDX + "int f(void)\n{\n" + "    g();\n" * (lines - 1) + "    return 0;\n}\n"

    def test_banned_call(self):
        for call in ("strcpy(a, b)", "sprintf(a, b)", "strtok(a, b)", "usleep(5)", "rand()", "alloca(8)"):
            self.refuses(self.TOOL, "cli/a.c", SPDX + "void f(void)\n{\n    %s;\n}\n" % call, "is banned")

    def test_shell_is_banned_in_what_is_shipped(self):
        self.refuses(self.TOOL, "src/core/a.c", SPDX + "void f(void)\n{\n    system(x);\n}\n", "system is banned")

    def test_word_in_comment_or_string_is_no_call(self):
        self.accepts(self.TOOL, "cli/a.c", SPDX + '/* no strcpy(a, b) here */\nchar *s = "sprintf(x)"; // gets(x)\n')

    def test_member_or_longer_name_is_no_call(self):
        self.accepts(self.TOOL, "src/core/a.c", SPDX + "void f(void)\n{\n    p->free(x);\n    psti_free(x);\n}\n")

    def test_plain_allocation_in_src(self):
        for call in ("malloc(3)", "free(p)", "calloc(1, 2)", "realloc(p, 3)"):
            self.refuses(self.TOOL, "src/op/a.c", SPDX + "void f(void)\n{\n    %s;\n}\n" % call, "is banned")

    def test_the_allocator_itself_may(self):
        self.accepts(self.TOOL, "src/core/memory.c", SPDX + "void f(void)\n{\n    free(p);\n}\n")

    SLEEPS = SPDX + "void f(void)\n{\n    clock_nanosleep(c, 1, &t, NULL);\n}\n"

    def test_ops_do_not_sleep(self):
        self.refuses(self.TOOL, "src/op/a.c", self.SLEEPS, "clock_nanosleep is banned")

    def test_the_op_that_is_for_it_does(self):
        self.accepts(self.TOOL, "src/op/delay.c", self.SLEEPS)

    def test_memory_of_a_library_is_freed_with_a_note(self):
        self.accepts(self.TOOL, "src/op/a.c", SPDX + "void f(void)\n{\n    free(p); /* lint: library memory */\n}\n")

    def test_kill_with_zero(self):
        self.refuses(self.TOOL, "cli/a.c", SPDX + "void f(void)\n{\n    kill(pid, 0);\n}\n", "namespace")

    def test_long_function(self):
        self.refuses(self.TOOL, "src/op/a.c", self.function(81), "f has 81 lines")

    def test_function_at_the_cap(self):
        self.accepts(self.TOOL, "src/op/a.c", self.function(80))

    def test_long_file(self):
        self.refuses(self.TOOL, "src/op/a.c", SPDX + "int x;\n" * 800, "the cap is 800")

    def test_file_longer_than_wanted_is_a_note(self):
        self.put("src/op/a.c", SPDX + "int x;\n" * 650)
        code, said = self.python_tool(self.TOOL)
        self.assertEqual(code, 0)
        self.assertIn("651 lines", said)

    def test_missing_licence_line(self):
        self.refuses(self.TOOL, "src/op/a.c", "int x;\n", "SPDX")
        self.refuses(self.TOOL, "tools/a.py", "#!/usr/bin/python3\nx = 1\n", "SPDX")

    def test_leftover_note(self):
        self.refuses(self.TOOL, "src/op/a.c", SPDX + "/* TO" "DO later */\n", "leftover")

    def test_tab(self):
        self.refuses(self.TOOL, "src/op/a.c", SPDX + "\tint x;\n", "a tab")

    def test_space_at_the_end(self):
        self.refuses(self.TOOL, "src/op/a.c", SPDX + "int x; \n", "end of the line")

    def test_machine_path(self):
        self.refuses(self.TOOL, "src/op/a.c", SPDX + 'char *p = "/ho' 'me/me/x";\n', "path of some machine")

    def test_tracker_number(self):
        self.refuses(self.TOOL, "src/op/a.c", SPDX + "/* see iss" "ue 7 */\n", "tracker")


class Symbols(Tree):
    def exports_of(self, source):
        path = self.put("lib.c", source)
        library = os.path.join(self.root, "lib.so")
        code, said = self.run_tool(["cc", "-shared", "-fPIC", "-fvisibility=hidden", "-o", library, path])
        self.assertEqual(code, 0, said)
        header = self.put("penstock.h", "#define PST_API\nPST_API int\npst_one(int a,\n    int b);\n")
        part = self.put("penstock/part.h", "PST_API const char *pst_two(void);\n")
        return self.run_tool([os.path.join(TOOLS, "check_symbols.sh"), library, header, part])

    EXPORT = '__attribute__((visibility("default"))) '

    def test_equal_sets(self):
        both = self.EXPORT + "int pst_one(int a, int b) { return a + b; }\n" + self.EXPORT + "char *pst_two(void) { return 0; }\n"
        self.assertEqual(self.exports_of(both + "int psti_hidden(void) { return 1; }\n"), (0, ""))

    def test_missing_and_surplus(self):
        code, said = self.exports_of(self.EXPORT + "int pst_one(void) { return 1; }\n" + self.EXPORT + "int psti_leak = 3;\n")
        self.assertEqual(code, 1)
        self.assertIn("not exported: pst_two", said)
        self.assertIn("psti_leak", said)


class Docs(Tree):
    TOOL = "check_docs.py"
    HEADER = "typedef struct pst_job_options {\n    size_t size;\n    int batch, depth; /* (1..9; 3) */\n} pst_job_options;\n"

    def test_link_to_nothing(self):
        self.refuses(self.TOOL, "docs/a.md", "[there](../b.md#part)\n", "../b.md does not exist")

    def test_link_that_leads_somewhere(self):
        self.put("b.md", "[back](docs/a.md)\n")
        self.accepts(self.TOOL, "docs/a.md", "[there](../b.md#part) [out](https://example.org/x)\n")

    def test_setting_left_out(self):
        self.put("include/penstock.h", self.HEADER)
        self.refuses(self.TOOL, "docs/settings.md", "`batch`\n", "depth of pst_job_options is missing")

    def test_setting_of_a_part_left_out(self):
        self.put("include/penstock/part.h", self.HEADER)
        self.refuses(self.TOOL, "docs/settings.md", "`batch`\n", "depth of pst_job_options is missing")

    def test_all_settings(self):
        self.put("include/penstock.h", self.HEADER)
        self.accepts(self.TOOL, "docs/settings.md", "`batch`, `depth`\n")

    def test_variable_left_out(self):
        self.put("cli/a.c", SPDX + 'char *x = getenv("PENSTOCK_SECRET");\n')
        self.put("docs/settings.md", "nothing\n")
        code, said = self.python_tool(self.TOOL)
        self.assertEqual(code, 1)
        self.assertIn("PENSTOCK_SECRET", said)

    def test_room_without_a_page(self):
        self.put("src/attic/a.c", SPDX)
        self.assertEqual(self.python_tool(self.TOOL)[0], 1)


class Summary(Tree):
    """The line that closes `make test`."""

    def close(self, results):
        code = ("import sys; sys.path.insert(0, %r); import run_tests; "
                "sys.exit(run_tests.report([run_tests.Result(*r) for r in %r], 1))" % (TOOLS, results))
        return self.run_tool([sys.executable, "-B", "-c", code])

    def test_all_good(self):
        code, said = self.close([("build", "a", "OK"), ("build", "b", "OK")])
        self.assertEqual((code, said.splitlines()[-1]), (0, "2 passed, 0 failed"))

    def test_failures_and_time_outs_are_named(self):
        code, said = self.close([("build", "a", "OK"), ("build", "b", "TIMEOUT"), ("build-asan", "c", "FAIL")])
        self.assertEqual((code, said.splitlines()[-1]), (1, "1 passed, 2 failed"))
        self.assertIn("TIMEOUT: build: b", said)
        self.assertIn("build-asan/meson-logs", said)

    def test_the_end_of_what_a_failed_test_said_is_shown_again(self):
        said = self.close([("build", "a", "OK", "well\n"), ("build", "b", "FAIL", "first\n" + 30 * "more\n" + "last\n")])[1]
        self.assertIn("    last\n", said)
        self.assertNotIn("first", said)
        self.assertNotIn("well", said)

    def test_skipped_is_not_passed(self):
        code, said = self.close([("build", "a", "SKIP")])
        self.assertEqual((code, said.splitlines()[-1]), (0, "0 passed, 0 failed"))
        self.assertIn("not run (skipped): build: a", said)


class Setup(Tree):
    def test_lists_the_packages_of_a_group(self):
        code, said = self.run_tool([os.path.join(TOOLS, "setup.sh"), "--list", "build"])
        self.assertEqual(code, 0)
        self.assertIn("libjpeg62-turbo-dev\n", said)

    def test_unknown_group(self):
        self.assertEqual(self.run_tool([os.path.join(TOOLS, "setup.sh"), "everything"])[0], 2)


if __name__ == "__main__":
    unittest.main()
