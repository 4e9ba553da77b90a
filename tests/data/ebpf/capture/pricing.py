# SPDX-License-Identifier: Apache-2.0
"""Is busy for so many seconds, in a generator."""

import sys
import time


def discount(quantity):
    return sum(i * i for i in range(quantity))


def price(quantity):
    return discount(quantity) + 1


end = time.time() + float(sys.argv[1])
while time.time() < end:
    price(1000)
