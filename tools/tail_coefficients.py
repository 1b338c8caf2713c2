"""Print the polynomial coefficients of `varopt.terms._tails`. Run: python tools/tail_coefficients.py (needs mpmath).

For a >= 0 let J_m(a) = int_0^inf x^m phi(x + a) dx, the m-th iterated integral of the normal density up to m!. The ratio
r_m = J_m / J_{m-1} falls from order one to m/a, so (a + SHIFT) r_m is smooth in t = affine(a / (a + SHIFT)) on [-1, 1] and a
Chebyshev series in t converges to double precision with about 30 terms (compare Shepherd and Laframboise, 1981, for
erfcx). Its monomial form has no cancellation (the sum of the absolute coefficients is 1.2 to 1.4 times the largest
value), so it is evaluated by Horner's rule.
"""

import mpmath as mp

SHIFT, LIMIT = mp.mpf(4), mp.mpf(40)


def ratio(a: mp.mpf, order: int) -> mp.mpf:
    """J_order(a) / J_{order - 1}(a) through the parabolic cylinder function, J_m = m! phi(a) e^{a^2/4} D_{-m-1}(a)."""
    return order * mp.pcfd(-order - 1, a) / mp.pcfd(-order, a)


def coefficients(order: int, terms: int) -> list[float]:
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * terms)) for k in range(terms)]
    values = []
    for t in nodes:
        share = (t + 1) / 2 * LIMIT / (LIMIT + SHIFT)  # a / (a + SHIFT)
        a = SHIFT * share / (1 - share)
        values.append((a + SHIFT) * ratio(a, order))
    series = [
        (2 - (j == 0)) / mp.mpf(terms) * mp.fsum(v * mp.cos(j * mp.pi * (2 * k + 1) / (2 * terms)) for k, v in enumerate(values))
        for j in range(terms)
    ]
    # From Chebyshev to monomials: T_{j+1} = 2 t T_j - T_{j-1}.
    previous, current = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    total = [mp.mpf(0)] * terms
    total[0] += series[0]
    for j in range(1, terms):
        for k, c in enumerate(current):
            total[k] += series[j] * c
        following = [mp.mpf(0)] + [2 * c for c in current]
        for k, c in enumerate(previous):
            following[k] -= c
        previous, current = current, following
    return [float(c) for c in total]


if __name__ == "__main__":
    mp.mp.dps = 60
    for order, terms in ((2, 30), (8, 35)):
        print(f"{order}: (")
        for c in reversed(coefficients(order, terms)):
            print(f"    {c!r},")
        print("),")
