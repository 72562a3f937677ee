# SPDX-License-Identifier: Apache-2.0
"""FINRA's audit, as in the papers: trades are fetched once, and each rule looks at all of them."""

from sinew import function, workflow


class Trade:
    def __init__(self, number):
        self.account = f"account-{number % 997:04}"
        self.price = 100 + number * 7919 % 1009
        self.volume = number * 31 % 977


@function
def fetch(count):
    return [Trade(number) for number in range(count)]


@function(concurrency=2)
def audit(trades, rule):
    return sum(1 for trade in trades if trade.volume == rule and trade.price > 500)


@function
def merge(verdicts):
    return {"rules": len(verdicts), "violations": sum(verdicts)}


@workflow
def finra(event):
    trades = fetch(event["trades"])
    return merge([audit(trades, rule) for rule in range(event["rules"])])
