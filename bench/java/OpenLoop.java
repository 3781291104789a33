import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Stock producer and stock consumer in one JVM, so that one clock sees both ends of a record's way.
 *
 * An open loop: record i is due at start + i / rate, whatever happened to the ones before it, and its latency counts
 * from when it was due. A broker that stalls therefore pays for every record that had to wait.
 * Written without type arguments and lambdas, because the compiler that builds it at run time is a small one.
 */
public class OpenLoop implements Runnable {
    private final String bootstrap;
    private final String topic;
    private final int count;
    private final int perSecond;
    private final int recordSize;
    private volatile Exception failure;

    public OpenLoop(String bootstrap, String topic, int count, int perSecond, int recordSize) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.count = count;
        this.perSecond = perSecond;
        this.recordSize = recordSize;
    }

    /** Nanoseconds from due to received, in the order of arrival, as text: one number per line. */
    public static String run(String bootstrap, String topic, int count, int perSecond, int recordSize)
            throws Exception {
        OpenLoop loop = new OpenLoop(bootstrap, topic, count, perSecond, recordSize);
        return loop.measure();
    }

    private String measure() throws Exception {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        KafkaConsumer consumer = new KafkaConsumer(settings);
        StringBuilder result = new StringBuilder();
        try {
            List partitions = new ArrayList();
            partitions.add(new TopicPartition(topic, 0));
            consumer.assign(partitions);
            consumer.seekToEnd(partitions);
            consumer.position(new TopicPartition(topic, 0));
            Thread sender = new Thread(this);
            sender.start();
            int received = 0;
            long deadline = System.nanoTime() + (count * 1000000000L) / perSecond + 30000000000L;
            while (received < count) {
                Iterator records = consumer.poll(Duration.ofMillis(100)).iterator();
                long now = System.nanoTime();
                while (records.hasNext()) {
                    ConsumerRecord record = (ConsumerRecord) records.next();
                    result.append(now - ByteBuffer.wrap((byte[]) record.value()).getLong()).append('\n');
                    received++;
                }
                if (failure != null) {
                    throw failure;
                }
                if (now - deadline > 0) {
                    throw new IllegalStateException("received " + received + " of " + count);
                }
            }
            sender.join();
        } finally {
            consumer.close();
        }
        return result.toString();
    }

    public void run() {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("linger.ms", "0");
        try {
            KafkaProducer producer = new KafkaProducer(settings);
            try {
                producer.partitionsFor(topic);
                long start = System.nanoTime();
                for (int i = 0; i < count; i++) {
                    long due = start + (i * 1000000000L) / perSecond;
                    long wait = due - System.nanoTime();
                    while (wait > 0) {
                        LockSupport.parkNanos(wait);
                        wait = due - System.nanoTime();
                    }
                    byte[] value = new byte[recordSize];
                    ByteBuffer.wrap(value).putLong(due);
                    producer.send(new ProducerRecord(topic, value));
                }
            } finally {
                producer.close();
            }
        } catch (Exception problem) {
            failure = problem;
        }
    }
}
