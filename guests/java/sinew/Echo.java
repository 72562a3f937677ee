// SPDX-License-Identifier: Apache-2.0
package sinew;

/** A handler to try things with. */
final class Echo {
    private Echo() {}

    static Object handle(Object event, com.amazonaws.services.lambda.runtime.Context context) {
        context.getRemainingTimeInMillis();
        return event;
    }
}
