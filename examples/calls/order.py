# SPDX-License-Identifier: Apache-2.0
import sinew


def handler(event, context):
    prices, unknown = {}, []
    for item in event["items"]:
        try:
            prices[item] = sinew.call("price", {"item": item})["cents"]
        except sinew.CallError as error:
            if error.status != 404:
                raise
            unknown.append(item)
    return {"cents": sum(prices.values()), "prices": prices, "unknown": unknown}
