/* SPDX-License-Identifier: Apache-2.0
 * `atsinfer chat` on a terminal (a pseudo one): line editing, history, Ctrl-C, what is shown. Every
 * step waits for what it expects to see, so that the speed of the machine does not matter. */
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TOOL ATSI_BINARY_DIR "/bin/atsinfer"
#define MODEL ATSI_SOURCE_DIR "/demo/demo-dense-q8_0.gguf"
#define THINK ATSI_SOURCE_DIR "/tests/data/chat_think.jinja"
#define PLAIN ATSI_SOURCE_DIR "/tests/data/chat_plain.jinja"
#define PATIENCE_MS 60000 /* a step that takes longer has failed */

struct terminal {
    pid_t pid;
    int fd;
    char seen[1 << 18]; /* what came since the last expect() */
    size_t n;
};

static struct terminal term;
static char state_home[] = "/tmp/atsinfer-test-XXXXXX";

static void start(const char *const *args)
{
    term = (struct terminal){.n = 0};
    term.pid = forkpty(&term.fd, NULL, NULL, NULL);
    assert_true(term.pid >= 0);
    if (term.pid > 0)
        return;
    (void)setenv("TERM", "xterm", 1);
    (void)setenv("XDG_STATE_HOME", state_home, 1);
    (void)setenv("HOME", state_home, 1);
    (void)setenv("LC_ALL", "C.UTF-8", 1);
    union {
        const char *const *in;
        char *const *out;
    } argv = {.in = args};
    (void)execv(TOOL, argv.out);
    _exit(127);
}

#define START(...)                                                                                 \
    do {                                                                                           \
        const char *const args[] = {"atsinfer", "chat", "-m",           MODEL,                     \
                                    "--temp",   "0",    "--no-timings", __VA_ARGS__};              \
        start(args);                                                                               \
    } while (0)

/* Reads more of what the program shows; false at its end. */
static bool read_more(void)
{
    struct pollfd p = {.fd = term.fd, .events = POLLIN};
    ssize_t n;
    assert_true(term.n + 1 < sizeof term.seen);
    if (poll(&p, 1, PATIENCE_MS) == 0)
        fail_msg("nothing more came; so far: %s", term.seen);
    n = read(term.fd, term.seen + term.n, sizeof term.seen - term.n - 1);
    if (n <= 0)
        return false;
    term.n += (size_t)n;
    term.seen[term.n] = '\0';
    return true;
}

/* Waits for `text`, and forgets what came up to its end. */
static void expect(const char *text)
{
    char *at;
    while ((at = memmem(term.seen, term.n, text, strlen(text))) == NULL)
        if (!read_more())
            fail_msg("ended without \"%s\"; so far: %s", text, term.seen);
    at += strlen(text);
    term.n -= (size_t)(at - term.seen);
    memmove(term.seen, at, term.n + 1);
}

/* Types when the program edits a line, or writes an answer (`any_time`). */
static void type_to(const char *keys, bool any_time)
{
    struct termios t;
    struct timespec pause = {.tv_nsec = 5000000};
    for (int ms = 0; !any_time && ms < PATIENCE_MS; ms += 5) {
        assert_int_equal(tcgetattr(term.fd, &t), 0);
        if ((t.c_lflag & ICANON) == 0)
            break;
        (void)nanosleep(&pause, NULL);
    }
    assert_int_equal(write(term.fd, keys, strlen(keys)), strlen(keys));
}

static void type(const char *keys)
{
    type_to(keys, false);
}

/* Waits for the end; returns the exit code. */
static int finish(void)
{
    int status;
    while (read_more())
        ;
    assert_int_equal(waitpid(term.pid, &status, 0), term.pid);
    (void)close(term.fd);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void leave(void)
{
    type("\004"); /* Ctrl-D */
    assert_int_equal(finish(), 0);
}

/* ---------------------------------------------------------------- tests */
static void test_editing(void **state)
{
    (void)state;
    START(NULL);
    expect("> ");
    type("How much is 20 plus 4\1773?\r"); /* a slip, taken back */
    expect("20 + 3 = 23.");
    expect("> ");
    type("\033[A"); /* the line before, from the history */
    expect("How much is 20 plus 3?");
    type("\r");
    expect("20 + 3 = 23.");
    expect("> ");
    /* Each of these is one character of two bytes; taken back, nothing of them is left. */
    type("\xC3\xA4\xC3\xB6\177\1775-5\r");
    expect("5 - 5 = 0.");
    expect("> ");
    type("\"\"\"\r");
    expect(". ");
    type("5-5\"\"\"\r");
    expect("5 - 5 = 0.");
    expect("> ");
    type("/undoo\r");
    expect("did you mean /undo?"); /* an error is no end */
    expect("> ");
    leave();
}

/* The history is kept for the next time, for nobody else's eyes. */
static void test_history(void **state)
{
    char path[128];
    struct stat st;
    (void)state;
    START(NULL);
    expect("> ");
    type("5-5\r");
    expect("5 - 5 = 0.");
    expect("> ");
    leave();
    (void)snprintf(path, sizeof path, "%s/atsinfer/chat_history", state_home);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    START(NULL);
    expect("> ");
    type("\033[A");
    expect("5-5");
    type("\r");
    expect("5 - 5 = 0.");
    expect("> ");
    leave();
    assert_int_equal(unlink(path), 0);
    START("--no-history", NULL);
    expect("> ");
    type("5-5\r");
    expect("5 - 5 = 0.");
    expect("> ");
    leave();
    assert_int_equal(stat(path, &st), -1);
}

static void test_interrupt_answer(void **state)
{
    (void)state;
    START("-c", "200000", "--ignore-eos", NULL);
    expect("> ");
    type("How much is 20 plus 3?\r");
    expect("20 + 3 = 23."); /* and on and on */
    type_to("\003", true);
    expect("[stopped]");
    expect("> ");
    type("/stats\r"); /* the answer so far is part of the conversation */
    expect("1 turns, 2 messages");
    expect("> ");
    type("/undo\r");
    expect("0 turns are left");
    expect("> ");
    leave();
}

static void test_interrupt_prompt(void **state)
{
    (void)state;
    START(NULL);
    expect("> ");
    type("\003");
    expect("Ctrl-D or /exit leaves");
    expect("> ");
    type("begun\\\r");
    expect(". ");
    type("\003");
    expect("[dropped]");
    expect("> ");
    type("5-5\r");
    expect("5 - 5 = 0.");
    expect("> ");
    type("/exit\r");
    assert_int_equal(finish(), 0);
}

/* Ctrl-Z in the middle of a line: the terminal is given back, and then the line goes on. */
static void test_suspend(void **state)
{
    struct termios t;
    int status;
    (void)state;
    START(NULL);
    expect("> ");
    type("5-");
    expect("5-");
    type("\032");
    assert_int_equal(waitpid(term.pid, &status, WUNTRACED), term.pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(tcgetattr(term.fd, &t), 0);
    assert_true((t.c_lflag & ICANON) != 0);
    assert_int_equal(kill(term.pid, SIGCONT), 0);
    expect("> ");
    expect("5-");
    type("5\r");
    expect("5 - 5 = 0.");
    expect("> ");
    leave();
}

/* What is typed too early is not lost: a line, and Ctrl-D, while the model is loaded. */
static void test_type_ahead(void **state)
{
    (void)state;
    START(NULL);
    type_to("5-5\r\004", true);
    expect("5 - 5 = 0.");
    assert_int_equal(finish(), 0);
}

static void test_reasoning(void **state)
{
    (void)state;
    START("--template", THINK, "-p", "How much is 20 plus 3?", NULL);
    expect("\033[2m"); /* dimmed */
    expect("\033[22m");
    expect("> ");
    leave();
    START("--template", THINK, "--hide-thinking", "-p", "How much is 20 plus 3?", NULL);
    while (memmem(term.seen, term.n, "> ", 2) == NULL)
        assert_true(read_more());
    assert_null(strstr(term.seen, "\033[2m"));
    leave();
}

/* What is shown of others' text cannot command the terminal. */
static void test_escapes(void **state)
{
    (void)state;
    START("--template", PLAIN, "--system", "a\033]0;title\007b\302\233c", NULL);
    expect("> ");
    type("/system\r");
    expect("a\xE2\x90\x9B]0;title\xE2\x90\x87"
           "b\xEF\xBF\xBD"
           "c");
    expect("> ");
    leave();
}

static int make_home(void **state)
{
    (void)state;
    return mkdtemp(state_home) != NULL ? 0 : -1;
}

static int remove_home(void **state)
{
    char path[128];
    (void)state;
    (void)snprintf(path, sizeof path, "rm -rf '%s'", state_home);
    return system(path); /* NOLINT(cert-env33-c): a constant command of a test */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_editing),          cmocka_unit_test(test_history),
        cmocka_unit_test(test_interrupt_answer), cmocka_unit_test(test_interrupt_prompt),
        cmocka_unit_test(test_suspend),          cmocka_unit_test(test_type_ahead),
        cmocka_unit_test(test_reasoning),        cmocka_unit_test(test_escapes),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
