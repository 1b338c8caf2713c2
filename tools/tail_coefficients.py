"""Print the coefficients of `varopt.terms._tails`. Run: python tools/tail_coefficients.py (needs mpmath).

For a >= 0 let J_m(a) = int_0^inf x^m phi(x + a) dx. The ratio r_m = J_m / J_{m-1} falls from order one to m/a, so it is
written as P(a)/Q(a) with Q one degree above P. The two interpolate r_m at the Chebyshev points of
t = affine(a / (a + shift)), which is close to the best approximation: the error printed is relative, on [0, 40].
r_m has a continued fraction of positive terms (it is a ratio of Stieltjes transforms), and all coefficients turn out
positive: neither polynomial cancels. Near 0, where 1/2 - J_0 is wanted to full relative accuracy, (J_0 - 1/2) / a
is interpolated by a polynomial in a^2.
"""

import mpmath as mp

LIMIT, NEAR = mp.mpf(40), mp.mpf("0.125")
DEGREE = 11  # each degree more divides the error by 40; at 10 it is still above the rounding of float64


def ratio(a: mp.mpf, order: int) -> mp.mpf:
    """J_order(a) / J_{order - 1}(a) through the parabolic cylinder function, J_m = m! phi(a) e^{a^2/4} D_{-m-1}(a)."""
    return order * mp.pcfd(-order - 1, a) / mp.pcfd(-order, a)


def interpolate(order: int, shift: float) -> tuple[list[mp.mpf], list[mp.mpf]]:
    """P and Q by increasing degree; the highest coefficient of Q is 1."""
    count = 2 * DEGREE
    system, right = mp.matrix(count, count), mp.matrix(count, 1)
    for i in range(count):
        t = mp.cos(mp.pi * (2 * i + 1) / (2 * count))
        share = (t + 1) / 2 * LIMIT / (LIMIT + shift)  # a / (a + shift)
        a = shift * share / (1 - share)
        r = ratio(a, order)
        for j in range(DEGREE):
            system[i, j], system[i, DEGREE + j] = a**j, -r * a**j
        right[i] = r * a**DEGREE
    solution = list(mp.lu_solve(system, right))
    return solution[:DEGREE], [*solution[DEGREE:], mp.mpf(1)]


def near_zero(terms: int) -> list[mp.mpf]:
    """(J_0(a) - 1/2) / a as a polynomial in a^2 on [0, NEAR^2], by increasing degree."""
    system, right = mp.matrix(terms, terms), mp.matrix(terms, 1)
    for i in range(terms):
        a = NEAR * mp.sqrt((1 + mp.cos(mp.pi * (2 * i + 1) / (2 * terms))) / 2)
        for j in range(terms):
            system[i, j] = a ** (2 * j)
        right[i] = -mp.erf(a / mp.sqrt(2)) / (2 * a)
    return list(mp.lu_solve(system, right))


def error(order: int, p: list[mp.mpf], q: list[mp.mpf]) -> mp.mpf:
    """Largest relative error of P/Q."""
    points = [LIMIT * (mp.mpf(k) / 200) ** 3 for k in range(201)]
    return max(abs(mp.polyval(p[::-1], a) / mp.polyval(q[::-1], a) / ratio(a, order) - 1) for a in points)


if __name__ == "__main__":
    mp.mp.dps = 80
    for order, shift in ((2, 5.0), (8, 8.0)):
        p, q = interpolate(order, shift)
        if min(p + q) <= 0:
            raise ArithmeticError(f"r_{order}: a coefficient is not positive.")
        print(f"{order}: (  # relative error {mp.nstr(error(order, p, q), 2)}")
        for polynomial in (p, q):
            print("    (" + ", ".join(repr(float(c)) for c in reversed(polynomial)) + "),")
        print("),")
    print("near zero: (" + ", ".join(repr(float(c)) for c in reversed(near_zero(5))) + ")")
