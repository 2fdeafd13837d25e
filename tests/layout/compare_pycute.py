#!/usr/bin/env python3
"""Compares libglint's layout algebra with pycute (from the package nvidia-cutlass) on random layouts.

    compare_pycute.py LIBGLINT.so [CASES] [SEED]

Exit status 77 (skipped) where pycute is not installed. What is compared: the text of every result; where pycute asserts, glint must refuse or
return a composition that holds as a function. Known differences, all on degenerate input, are judged by the law instead of by the text:
right inverses of layouts with stride 0 (CuTe's C++ skips such modes, pycute stops), and pycute's results that its own law rejects.
"""
import ctypes
import random
import sys

try:
    import pycute
    from pycute import Layout
except ImportError:
    print("pycute is not installed: nothing to compare with")
    sys.exit(77)

BUFFER = 8192  # more than sizeof(glint_layout)


class Glint:
    """The C functions on opaque buffers; text in, text out."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.glint_layout_format.restype = ctypes.c_size_t
        self.error = ctypes.create_string_buffer(256)

    def parse(self, text, kind="glint_layout_parse"):
        out = ctypes.create_string_buffer(BUFFER)
        if getattr(self.lib, kind)(text.encode(), out, self.error):
            raise ValueError(self.error.value.decode())
        return out

    def format(self, layout):
        text = ctypes.create_string_buffer(4096)
        self.lib.glint_layout_format(layout, text, ctypes.c_size_t(4096))
        return text.value.decode()

    def call(self, name, *arguments):
        out = ctypes.create_string_buffer(BUFFER)
        if getattr(self.lib, name)(*arguments, out, self.error):
            raise ValueError(self.error.value.decode())
        return self.format(out)


def text_of(x):
    """pycute's shape or stride in glint's text form (a tuple of one without Python's comma)."""
    return "(" + ",".join(map(text_of, x)) + ")" if isinstance(x, tuple) else str(x)


def layout_text(l):
    return text_of(l.shape) + ":" + text_of(l.stride)


def tiler_text(t):
    if t is None:
        return "_"
    if isinstance(t, tuple):
        return "<" + ",".join(map(tiler_text, t)) + ">"
    return layout_text(t)


def random_shape(r, depth=0):
    if depth == 2 or r.random() < 0.45:
        return r.choice([1, 2, 2, 3, 4, 4, 6, 8])
    return tuple(random_shape(r, depth + 1) for _ in range(r.randint(1, 3)))


def random_strides(r, shape):
    """Compact in a random order of modes, sometimes padded, sometimes with a broadcast mode, sometimes arbitrary."""
    flat = pycute.flatten(shape)
    style = r.random()
    if style < 0.15:
        strides = [r.randint(0, 12) for _ in flat]
    else:
        order, strides, current = list(range(len(flat))), [0] * len(flat), 1
        if style < 0.6:
            r.shuffle(order)
        for i in order:
            strides[i] = current
            current *= flat[i]
            if r.random() < 0.15:
                current *= r.choice([2, 3])
        if style > 0.9:
            strides[r.randrange(len(flat))] = 0
    it = iter(strides)

    def like(s):
        return tuple(map(like, s)) if isinstance(s, tuple) else next(it)

    return like(shape)


def random_layout(r):
    shape = random_shape(r)
    return Layout(shape, random_strides(r, shape))


def random_tiler(r, layout):
    if r.random() < 0.5 or not isinstance(layout.shape, tuple):
        return random_layout(r)
    return tuple(r.choice([None, Layout(r.choice([1, 2, 4])), Layout(r.choice([2, 4]), r.choice([1, 2]))]) for _ in range(r.randint(1, len(layout))))


def sane(layout):
    """No mode of size 0: what pycute returns when an operation was undefined and nothing noticed."""
    return all(s >= 1 for s in pycute.flatten(layout.shape))


class Comparison:
    def __init__(self, glint):
        self.g, self.agreed, self.refused, self.by_law, self.failures = glint, 0, 0, 0, []

    def check(self, what, ours, theirs, law, undefined):
        """ours, theirs: functions. law(text of our result): does it hold? undefined(): must the operation be refused?"""
        try:
            expected = theirs()
            expected_text = layout_text(expected)
            if not sane(expected):
                expected_text = None
        except (AssertionError, ZeroDivisionError, IndexError, TypeError):
            expected_text = None
        try:
            got = ours()
        except ValueError as e:
            if expected_text is None or undefined(expected):
                self.refused += 1
            else:
                self.failures.append(f"{what}: refused ({e}), pycute says {expected_text}")
            return
        if got == expected_text:
            self.agreed += 1
        elif law(got):
            self.by_law += 1
        else:
            self.failures.append(f"{what}: {got}, pycute says {expected_text}")


def parse_back(text):
    """Our text as a pycute layout."""
    shape, stride = text.split(":")
    fix = lambda s: eval(s.replace(")", ",)").replace(",,", ","), {"__builtins__": {}}) if "(" in s else int(s)
    return Layout(fix(shape), fix(stride))


def run(glint, cases, seed):
    r = random.Random(seed)
    c = Comparison(glint)
    never = lambda text: False
    for _ in range(cases):
        a, b, t = random_layout(r), random_layout(r), None
        t = random_tiler(r, a)
        at, bt, tt = layout_text(a), layout_text(b), tiler_text(t)
        la, lb, lt = glint.parse(at), glint.parse(bt), glint.parse(tt, "glint_layout_parse_tiler")
        assert glint.format(la) == at and glint.format(lt) == tt
        zero = any(d == 0 and s > 1 for s, d in zip(pycute.flatten(a.shape), pycute.flatten(a.stride)))
        index = r.randrange(3 * a.size())
        assert ctypes.c_int64(glint.lib.glint_layout_at(la, ctypes.c_int64(index))).value == a(index), (at, index)

        composed = lambda text: all(parse_back(text)(i) == a(b(i)) for i in range(b.size()))
        wrong = lambda expected: not all(expected(i) == a(b(i)) for i in range(b.size())) or expected.size() != b.size()
        c.check(f"compose {at} {bt}", lambda: glint.call("glint_layout_compose", la, lb), lambda: pycute.composition(a, b), composed, wrong)
        c.check(f"coalesce {at}", lambda: glint.call("glint_layout_coalesce", la, None), lambda: pycute.coalesce(a), never, lambda e: False)
        c.check(f"filter {at}", lambda: glint.call("glint_layout_filter", la, None), lambda: pycute.filter(a), never, lambda e: False)
        target = r.choice([1, 24, 64, a.size(), a.cosize(), 3 * a.cosize()])
        overlap = lambda expected: len({a(i) for i in range(a.size())}) < pycute.filter(a).size()
        interleaved = lambda expected: overlap(expected) or any(d1 < d0 * s0 for (d0, s0), (d1, s1) in _neighbours(a))
        c.check(f"complement {at} {target}", lambda: glint.call("glint_layout_complement", la, ctypes.c_int64(target)),
                lambda: pycute.complement(a, target), never, interleaved)
        inverse = lambda text: all(a(parse_back(text)(i)) == i for i in range(parse_back(text).size()))
        c.check(f"right_inverse {at}", lambda: glint.call("glint_layout_right_inverse", la), lambda: pycute.right_inverse(a),
                lambda text: zero and inverse(text), lambda e: False)
        quasi = lambda text: all(a(parse_back(text)(a(i))) == a(i) for i in range(a.size()))
        c.check(f"left_inverse {at}", lambda: glint.call("glint_layout_left_inverse", la), lambda: pycute.left_inverse(a),
                lambda text: zero and quasi(text), lambda expected: any(expected(a(i)) != i for i in range(a.size())))

        for name, law, functions in (("divide", divides, (pycute.logical_divide, pycute.zipped_divide, pycute.tiled_divide)),
                                     ("product", multiplies, (pycute.logical_product, pycute.zipped_product, pycute.tiled_product))):
            logical = lambda: glint.call("glint_layout_" + name, la, lt, 0)
            for form, function in enumerate(functions):
                # where pycute asserts and glint does not, the logical form is judged by the law; the other forms are its modes in other order
                c.check(f"{name} form {form} {at} {tt}", lambda: glint.call("glint_layout_" + name, la, lt, form), lambda: function(a, t),
                        lambda text: holds(law, a, t, parse_back(logical())), lambda expected: not by_mode(law, functions[0], a, t))
    return c


def _neighbours(a):
    modes = sorted((d, s) for s, d in zip(pycute.flatten(a.shape), pycute.flatten(a.stride)) if s > 1 and d != 0)
    return list(zip(modes, modes[1:]))


def divides(a, t, result):
    """A divide by one layout is a o (t, complement), as a function."""
    try:
        both = pycute.make_layout(t, pycute.complement(t, a.size()))
    except AssertionError:
        return False
    return sane(both) and result.size() == both.size() and all(result(i) == a(both(i)) for i in range(both.size()))


def multiplies(a, t, result):
    """A product with one layout is (a, complement o t), as a function."""
    try:
        rest = pycute.complement(a, a.size() * t.cosize())
    except AssertionError:
        return False
    n = a.size()
    return sane(rest) and result.size() == n * t.size() and all(result(i) == a(i % n) + rest(t(i // n)) for i in range(result.size()))


def holds(law, a, t, result):
    """Does a result obey the law in every mode that the tiler touches, and keep the others?"""
    if t is None:
        return result == a
    if isinstance(t, tuple):
        return all(holds(law, a[i], t[i], result[i]) for i in range(len(t))) and all(result[i] == a[i] for i in range(len(t), len(a)))
    return law(a, t, result)


def by_mode(law, operation, a, t):
    """Does pycute's own result obey the law in every mode that the tiler touches?"""
    if t is None:
        return True
    if isinstance(t, tuple):
        return all(by_mode(law, operation, a[i], t[i]) for i in range(len(t)))
    try:
        return law(a, t, operation(a, t))
    except (AssertionError, ZeroDivisionError):
        return False


def main():
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    print(f"seed {seed}, {cases} cases")
    c = run(Glint(sys.argv[1]), cases, seed)
    print(f"{c.agreed} results equal, {c.refused} undefined and refused, {c.by_law} different but right by the law, {len(c.failures)} failures")
    for line in c.failures[:20]:
        print("  " + line)
    return 1 if c.failures else 0


if __name__ == "__main__":
    sys.exit(main())
