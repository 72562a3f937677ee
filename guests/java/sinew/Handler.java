// SPDX-License-Identifier: Apache-2.0
package sinew;

import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import com.amazonaws.services.lambda.runtime.RequestStreamHandler;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Type;

/**
 * The user's handler: a class that implements RequestHandler or RequestStreamHandler, or `Class::method`
 * (or `Class.method`), static or not, with (event, Context) or (event).
 */
final class Handler {
    private final Object target;
    private final Method method;
    /** What the event is turned into; null for a handler of streams. */
    private final Type event;

    private Handler(Object target, Method method, Type event) {
        this.target = target;
        this.method = method;
        this.event = event;
    }

    static Handler of(String name) throws ReflectiveOperationException {
        Method method = find(name, true);
        Class<?> type = classOf(name, true);
        Object target = Modifier.isStatic(method.getModifiers()) ? null : made(type);
        Type[] takes = method.getGenericParameterTypes();
        boolean isOfStreams = method.getParameterCount() == 3;
        return new Handler(target, method, isOfStreams ? null : takes[0]);
    }

    /** Looks at a handler without running anything of it. */
    static void inspect(String name) throws ReflectiveOperationException {
        Method method = find(name, false);
        for (Type type : method.getGenericParameterTypes()) {
            if (type instanceof java.lang.reflect.ParameterizedType) {
                ((java.lang.reflect.ParameterizedType) type).getActualTypeArguments();
            }
        }
        method.getGenericReturnType();
    }

    Answer call(Request request, Context context) throws Throwable {
        try {
            if (event == null) {
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                method.invoke(target, new ByteArrayInputStream(request.body), out, context);
                return Answer.ofBytes(out.toByteArray());
            }
            Object given = Json.as(request.event(), event);
            boolean isAlone = method.getParameterCount() == 1;
            return Answer.of(isAlone ? method.invoke(target, given) : method.invoke(target, given, context));
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    private static Object made(Class<?> type) throws ReflectiveOperationException {
        Constructor<?> constructor;
        try {
            constructor = type.getDeclaredConstructor();
        } catch (NoSuchMethodException error) {
            throw new IllegalArgumentException(type.getName() + " has no constructor without parameters");
        }
        constructor.setAccessible(true);
        return constructor.newInstance();
    }

    private static String[] parts(String name) {
        int colons = name.indexOf("::");
        return colons < 0 ? new String[] {name} : new String[] {name.substring(0, colons), name.substring(colons + 2)};
    }

    /** The class that a handler names; or the one of `package.Class.method`. */
    private static Class<?> classOf(String name, boolean initialize) throws ClassNotFoundException {
        String[] parts = parts(name);
        ClassLoader loader = Handler.class.getClassLoader();
        try {
            return Class.forName(parts[0], initialize, loader);
        } catch (ClassNotFoundException error) {
            int dot = parts[0].lastIndexOf('.');
            if (parts.length > 1 || dot < 0) throw new ClassNotFoundException("no class " + parts[0] + "; the handler is " + name);
            try {
                return Class.forName(parts[0].substring(0, dot), initialize, loader);
            } catch (ClassNotFoundException neither) {
                throw new ClassNotFoundException("no class " + parts[0] + "; the handler is " + name);
            }
        }
    }

    private static Method find(String name, boolean initialize) throws ReflectiveOperationException {
        Class<?> type = classOf(name, initialize);
        String[] parts = parts(name);
        boolean isClass = parts.length == 1 && type.getName().equals(parts[0]);
        boolean isRequestHandler = RequestHandler.class.isAssignableFrom(type);
        if (isClass && !isRequestHandler && !RequestStreamHandler.class.isAssignableFrom(type)) {
            String wants = "it must implement RequestHandler or RequestStreamHandler, or a method be named: ";
            throw new IllegalArgumentException(type.getName() + " is no handler; " + wants + type.getName() + "::method");
        }
        String wanted = isClass ? "handleRequest" : parts.length > 1 ? parts[1] : name.substring(name.lastIndexOf('.') + 1);
        Method found = null;
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            for (Method method : at.getDeclaredMethods()) {
                // Of one that generics made double, the user's own says the types.
                if (method.getName().equals(wanted) && !method.isBridge() && isSuitable(method)) {
                    if (found == null || method.getParameterCount() > found.getParameterCount()) found = method;
                }
            }
        }
        if (found == null) {
            String takes = "(event), (event, Context) or (InputStream, OutputStream, Context)";
            throw new IllegalArgumentException(type.getName() + " has no method " + wanted + " that takes " + takes);
        }
        found.setAccessible(true);
        return found;
    }

    private static boolean isSuitable(Method method) {
        Class<?>[] takes = method.getParameterTypes();
        return takes.length == 1
                || takes.length == 2 && takes[1].isAssignableFrom(Context.class)
                || takes.length == 3 && takes[0] == java.io.InputStream.class && takes[1] == java.io.OutputStream.class;
    }
}
